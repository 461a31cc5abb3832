// Channels between the roles of one node and from clients to a server, and settings common to both ends.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/process/server_options.h"

namespace moestro {

// Enough for 128K token ids and their scores.
inline constexpr int kMaxMessageBytes = 64 << 20;

// How often a silent peer is pinged, and how long it may take to answer. A stopped or frozen process keeps its
// connections open. Without an answer they are closed, and their calls end with UNAVAILABLE. A process that ends closes
// them itself.
struct Keepalive {
  std::chrono::milliseconds interval;
  std::chrono::milliseconds patience;
};
// Between roles: a machine that swaps, or has no CPU time left, is silent for many seconds, and its calls are worth
// hours. Together as long as a supervisor waits (deploy/watch.sh), and below the router's --recovery-seconds.
inline constexpr Keepalive kRoleKeepalive{.interval = std::chrono::seconds(15), .patience = std::chrono::seconds(15)};
// Over TCP, only during calls: a network may lose packets for a while.
inline constexpr Keepalive kNetworkKeepalive{.interval = std::chrono::seconds(20),
                                             .patience = std::chrono::seconds(10)};
// How long one attempt to connect to a role may take, from the first packet to HTTP/2's settings: a busy role answers
// late. A role that is not there refuses at once, so this does not delay the successor of a dead one.
inline constexpr std::chrono::milliseconds kRoleConnectTimeout = std::chrono::seconds(1);
// Servers close connections with more frequent pings. Below every interval above, since two pings may arrive together.
inline constexpr std::chrono::milliseconds kMinPingInterval{500};

// A role's channel to another one. It finds a restarted peer within a fraction of a second (short reconnect back-off),
// since the roles share a machine. On a unix socket it detects a stopped peer within `keepalive`, also between calls.
std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address, const Keepalive& keepalive = kRoleKeepalive);

// A client's channel, otherwise the same. Each attempt to connect, to each address that the server's name has, may take
// `server.connect_seconds`. `authorities`: PEM certificates, one of which must vouch for the server's; empty: no TLS. A
// unix socket has none.
std::shared_ptr<grpc::Channel> ConnectServer(const ServerOptions& server, const std::string& authorities = "");

// The status of a call over ConnectServer's channel. If there was no connection, it is UNAVAILABLE with a remedy. The
// message of any other error begins with `peer`.
absl::Status FromServer(const grpc::Status& status, const ServerOptions& server, const char* peer = "router");

}  // namespace moestro
