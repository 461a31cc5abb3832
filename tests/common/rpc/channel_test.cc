#include "common/rpc/channel.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "common/rpc/server.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/hang.h"

namespace moestro {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

std::string SocketPath(const std::string& name) {
  return ::testing::TempDir() + "channel_" + name + std::to_string(getpid()) + ".sock";
}

// Watches the health of `path` until the call ends, at most `timeout`.
grpc::StatusCode Watch(const std::string& path, std::chrono::seconds timeout, bool wait_for_ready = true) {
  const auto stub = Health::NewStub(ConnectPeer("unix:" + path));
  grpc::ClientContext context;
  context.set_wait_for_ready(wait_for_ready);
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto stream = stub->Watch(&context, HealthCheckRequest());
  HealthCheckResponse reply;
  while (stream->Read(&reply)) {
  }
  return stream->Finish().error_code();
}

// A process that was stopped right after it accepted its first connection: receives all bytes and stays silent.
class StoppedPeer {
 public:
  // `delay`: from the connection to its first bytes.
  explicit StoppedPeer(const std::string& path, std::chrono::milliseconds delay = {})
      : path_(path), listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this, delay] {
      const int connection = accept(listener_, nullptr, nullptr);
      std::this_thread::sleep_for(delay);
      const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};  // an empty SETTINGS frame: the connection is ready
      EXPECT_EQ(write(connection, settings, sizeof(settings)), ssize_t{sizeof(settings)});
      char bytes[4096];
      while (read(connection, bytes, sizeof(bytes)) > 0) {
      }
      close(connection);
    });
  }
  ~StoppedPeer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    unlink(path_.c_str());
  }

 private:
  const std::string path_;
  const int listener_;
  std::thread thread_;
};

TEST(ChannelTest, CallToAStoppedPeerEnds) {
  const std::string path = SocketPath("stopped");
  StoppedPeer peer(path);
  EXPECT_EQ(Watch(path, kHang), grpc::StatusCode::UNAVAILABLE);
}

TEST(ChannelTest, ABusyPeerMayAnswerLate) {
  const std::string path = SocketPath("busy");
  StoppedPeer peer(path, kRoleConnectTimeout / 4);
  // Not UNAVAILABLE, as for a peer that cannot be reached.
  EXPECT_EQ(Watch(path, std::chrono::seconds(1), /*wait_for_ready=*/false), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST(ChannelTest, SilentCallsStayOpenAsLongAsThePeerLives) {
  const std::string path = SocketPath("silent");
  const auto server = RpcServer::Start({"unix:" + path}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  // Four pings: by default, gRPC's servers close the connection at the third.
  EXPECT_EQ(Watch(path, 4 * std::chrono::ceil<std::chrono::seconds>(kRoleKeepalive.interval) + std::chrono::seconds(1)),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace moestro
