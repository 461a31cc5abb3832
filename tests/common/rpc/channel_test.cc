#include "common/rpc/channel.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/hang.h"

namespace moestro {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string SocketPath(const std::string& name) {
  return ::testing::TempDir() + "channel_" + name + std::to_string(getpid()) + ".sock";
}

// Watches the health of the channel's server until the call ends, at most `timeout`.
grpc::Status WatchOver(const std::shared_ptr<grpc::Channel>& channel, std::chrono::milliseconds timeout,
                       bool wait_for_ready) {
  const auto stub = Health::NewStub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(wait_for_ready);
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto stream = stub->Watch(&context, HealthCheckRequest());
  HealthCheckResponse reply;
  while (stream->Read(&reply)) {
  }
  return stream->Finish();
}

// As roles have it, in less time.
constexpr Keepalive kShort{.interval = kMinPingInterval * 6 / 5, .patience = std::chrono::milliseconds(500)};

// The same for a role at `path`.
grpc::StatusCode Watch(const std::string& path, std::chrono::seconds timeout, bool wait_for_ready = true) {
  return WatchOver(ConnectPeer("unix:" + path, kShort), timeout, wait_for_ready).error_code();
}

// A process that was stopped right after it accepted its first connection: receives all bytes and stays silent.
class StoppedPeer {
 public:
  // `delay`: from the connection to its first bytes; nullopt: they never come.
  explicit StoppedPeer(const std::string& path,
                       std::optional<std::chrono::milliseconds> delay = std::chrono::milliseconds(0))
      : path_(path), listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this, delay] {
      const int connection = accept(listener_, nullptr, nullptr);
      if (delay) {
        std::this_thread::sleep_for(*delay);
        const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};  // an empty SETTINGS frame: the connection is ready
        EXPECT_EQ(write(connection, settings, sizeof(settings)), ssize_t{sizeof(settings)});
      }
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

// The call ends before its deadline, and before that of an attempt to connect to a role.
TEST(ChannelTest, AServerThatNeverAnswersIsGivenUpWhenTheFlagSays) {
  const std::string path = SocketPath("never");
  StoppedPeer peer(path, std::nullopt);
  const ServerOptions server{.address = "unix:" + path, .connect_seconds = 0.05};
  const absl::Status status =
      FromServer(WatchOver(ConnectServer(server), kRoleConnectTimeout * 9 / 10, /*wait_for_ready=*/false), server);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot reach unix:" + path), HasSubstr("deploy/status"),
                                                   HasSubstr("may take 0.05 s (--connect-timeout)")));
}

// An attempt could take longer than the call.
TEST(ChannelTest, AServerThatRefusesIsGivenUpAtOnce) {
  const ServerOptions server{.address = "unix:" + SocketPath("absent"), .connect_seconds = 2 * kHangSeconds};
  const grpc::Status status = WatchOver(ConnectServer(server), kHang, /*wait_for_ready=*/false);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

// A variable of the environment names the authorities for all servers.
TEST(ChannelTest, AUnixSocketHasNoTls) {
  const ServerOptions local{.address = "unix:" + SocketPath("plain")};
  const auto server = RpcServer::Start({local.address}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kHang);
  HealthCheckResponse reply;
  const grpc::Status status =
      Health::NewStub(ConnectServer(local, "certificates"))->Check(&context, HealthCheckRequest(), &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Each variable names a proxy that does not answer.
TEST(ChannelTest, ThisMachineIsReachedWithoutAProxy) {
  const auto server = RpcServer::Start({"127.0.0.1:0"}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    for (const char* host : {"127.0.0.1", "localhost"}) {
      setenv(name, "http://127.0.0.1:9", 1);
      const ServerOptions local{.address = absl::StrCat(host, ":", (*server)->port(0))};
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kHang);
      HealthCheckResponse reply;
      const grpc::Status status = Health::NewStub(ConnectServer(local))->Check(&context, HealthCheckRequest(), &reply);
      EXPECT_TRUE(status.ok()) << name << " " << host << ": " << status.error_message();
      unsetenv(name);
    }
  }
}

TEST(ChannelTest, WhatAServerSaysIsNotAMissingConnection) {
  const absl::Status status = FromServer({grpc::StatusCode::UNAVAILABLE, "model is loading"}, {});
  EXPECT_EQ(status, absl::UnavailableError("router: model is loading"));
}

TEST(ChannelTest, SilentCallsStayOpenAsLongAsThePeerLives) {
  const std::string path = SocketPath("silent");
  const auto server = RpcServer::Start({"unix:" + path}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  // Four pings: by default, gRPC's servers close the connection at the third.
  EXPECT_EQ(Watch(path, std::chrono::ceil<std::chrono::seconds>(5 * kShort.interval)),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace moestro
