// Client channels between the roles of one node, and how far apart they may be.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace moestro {

// 128K token ids and their scores fit well.
inline constexpr int kMaxMessageBytes = 64 << 20;

// A channel that finds a restarted peer within a fraction of a second (short reconnect back-off): the roles share a
// machine.
std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address);

}  // namespace moestro
