// Client channels between the roles of one node, and what client and server agree on.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>

namespace moestro {

// 128K token ids and their scores fit well.
inline constexpr int kMaxMessageBytes = 64 << 20;

// How often a silent peer is asked whether it lives, and how long it may take to say so. A process that is stopped or
// frozen keeps its connections open: without an answer they break, and their calls end with UNAVAILABLE.
struct Keepalive {
  std::chrono::milliseconds interval;
  std::chrono::milliseconds patience;
};
// Between roles: together well below the seconds after which requests give a role up.
inline constexpr Keepalive kRoleKeepalive{.interval = std::chrono::seconds(2), .patience = std::chrono::seconds(2)};
// Over TCP, during calls only: a network may lose packets for a while.
inline constexpr Keepalive kNetworkKeepalive{.interval = std::chrono::seconds(20),
                                             .patience = std::chrono::seconds(10)};
// Servers break connections on which pings come faster than this. Below every interval above, for two pings may arrive
// together.
inline constexpr std::chrono::milliseconds kMinPingInterval{500};

// A channel that finds a restarted peer within a fraction of a second (short reconnect back-off): the roles share a
// machine. On a unix socket it learns within kRoleKeepalive that its peer is stopped, also between calls.
std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address);

}  // namespace moestro
