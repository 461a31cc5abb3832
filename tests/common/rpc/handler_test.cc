#include "common/rpc/handler.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

namespace moestro {
namespace {

class RpcMethodTest : public testing::Test {
 protected:
  double Failed() {
    return registry_.AddCounter("moestro_rpc_failed_total", "Calls that ended with an error", {{"method", "Test.Call"}})
        .Value();
  }
  uint64_t Calls() {
    const prometheus::ClientMetric metric =
        registry_
            .AddHistogram("moestro_rpc_seconds", "Time of a call, from its arrival to its end", RequestSecondsBuckets(),
                          {{"method", "Test.Call"}})
            .Collect();
    return metric.histogram.sample_count;
  }

  MetricsRegistry registry_{"test"};
  const RpcMethod method_{registry_, "Test.Call"};
  grpc::ServerContext context_;  // of a caller that waits
};

TEST_F(RpcMethodTest, EveryCallIsMeasured) {
  EXPECT_TRUE(method_.Handle(context_, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Calls(), 1);
  EXPECT_EQ(Failed(), 0);
  EXPECT_FALSE(method_.Handle(context_, [] { return absl::AbortedError("lost"); }).ok());
  EXPECT_EQ(Calls(), 2);
  EXPECT_EQ(Failed(), 1);
}

TEST_F(RpcMethodTest, ErrorsAndExceptionsGetTheirCode) {
  const grpc::Status aborted = method_.Handle(context_, [] { return absl::AbortedError("lost"); });
  EXPECT_EQ(aborted.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(aborted.error_message(), "lost");
  const auto without_memory = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_EQ(method_.Handle(context_, without_memory).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace moestro
