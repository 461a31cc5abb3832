// Client channels between the roles of one node, and settings common to client and server.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

namespace moestro {

// Enough for 128K token ids and their scores.
inline constexpr int kMaxMessageBytes = 64 << 20;

// How often a silent peer is pinged, and how long it may take to answer. A stopped or frozen process keeps its
// connections open. Without an answer they are closed, and their calls end with UNAVAILABLE.
struct Keepalive {
  std::chrono::milliseconds interval;
  std::chrono::milliseconds patience;
};
// Between roles: together well below the seconds after which requests give up on a role.
inline constexpr Keepalive kRoleKeepalive{.interval = std::chrono::seconds(2), .patience = std::chrono::seconds(2)};
// Over TCP, only during calls: a network may lose packets for a while.
inline constexpr Keepalive kNetworkKeepalive{.interval = std::chrono::seconds(20),
                                             .patience = std::chrono::seconds(10)};
// How long a connection may take from the first packet to HTTP/2's settings. A busy role answers late, and over a
// network TLS takes several round trips.
inline constexpr std::chrono::milliseconds kRoleConnectTimeout = std::chrono::seconds(1);
inline constexpr std::chrono::milliseconds kNetworkConnectTimeout = std::chrono::seconds(10);
// Servers close connections with more frequent pings. Below every interval above, since two pings may arrive together.
inline constexpr std::chrono::milliseconds kMinPingInterval{500};

// A channel that finds a restarted peer within a fraction of a second (short reconnect back-off), since the roles share
// a machine. On a unix socket it detects a stopped peer within kRoleKeepalive, also between calls. `authorities`: PEM
// certificates, one of which must vouch for the peer's; empty: no TLS.
std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address, const std::string& authorities = "");

}  // namespace moestro
