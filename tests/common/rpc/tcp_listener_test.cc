#include "common/rpc/tcp_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(TcpListenerTest, HandsConnectionsOver) {
  for (const char* address : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"}) {
    const auto listener = TcpListener::Bind(address).value();
    EXPECT_GT(listener->port(), 0);
    EXPECT_FALSE(listener->Answers(milliseconds(50))) << "the kernel takes connections, but nobody accepts them";
    listener->Serve([](int descriptor) {
      EXPECT_EQ(write(descriptor, "x", 1), 1);
      close(descriptor);
    });
    EXPECT_TRUE(listener->Answers(milliseconds(60000)));
  }
}

// As with TLS.
TEST(TcpListenerTest, SpeaksFirstToAServerThatWaits) {
  const auto listener = TcpListener::Bind("127.0.0.1:0", "knock").value();
  EXPECT_FALSE(listener->Answers(milliseconds(50)));
  listener->Serve([](int descriptor) {
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&waiting, 1, 60000), 1);
    char knock[5];
    EXPECT_EQ(read(descriptor, knock, sizeof(knock)), 5);
    EXPECT_EQ(std::string(knock, 5), "knock");
    close(descriptor);
  });
  EXPECT_TRUE(listener->Answers(milliseconds(60000)));
}

TEST(TcpListenerTest, AnAddressThatCannotBeHadIsNamed) {
  const auto listener = TcpListener::Bind("127.0.0.1:0").value();
  const std::string taken = absl::StrCat("127.0.0.1:", listener->port());
  for (const std::string& address : {taken, std::string("no.such.host.invalid:1"), std::string("127.0.0.1:http/2")}) {
    const absl::Status status = TcpListener::Bind(address).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  }
}

}  // namespace
}  // namespace moestro
