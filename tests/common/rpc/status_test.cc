#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

TEST(StatusMappingTest, EveryCodeSurvivesTheWire) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status sent(static_cast<absl::StatusCode>(code), "what happened");
    const absl::Status received = FromGrpc(ToGrpc(sent), "peer");
    EXPECT_EQ(received.code(), sent.code());
    EXPECT_EQ(received.message(), "peer: what happened");
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK, "peer").ok());
}

TEST(StatusMappingTest, LongMessagesAreCut) {
  EXPECT_EQ(ToGrpc(absl::InternalError(std::string(5000, 'x'))).error_message().size(), 1024u);
}

TEST(StatusMappingTest, BrokenConnectionsAreToldFromAnswers) {
  EXPECT_TRUE(IsPeerGone(absl::UnavailableError("connection refused")));
  EXPECT_TRUE(IsPeerGone(absl::UnknownError("decode: Stream removed")));
  EXPECT_FALSE(IsPeerGone(absl::InternalError("decode: logit is NaN")));
  EXPECT_FALSE(IsPeerGone(absl::CancelledError("the caller went away")));
  EXPECT_FALSE(IsPeerGone(absl::OkStatus()));
}

}  // namespace
}  // namespace moestro
