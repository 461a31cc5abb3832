#include "common/rpc/process.h"

#include <gtest/gtest.h>

#include <utility>

namespace moestro {
namespace {

// Who supervises a role starts it again unless it ended with kExitUsage.
TEST(ExitCodeTest, WrongInputsAreToldFromWhatMayPass) {
  using Code = absl::StatusCode;
  for (const auto& [code, expected] : {
           std::pair(Code::kOk, kExitOk),
           std::pair(Code::kInvalidArgument, kExitUsage),
           std::pair(Code::kNotFound, kExitUsage),
           std::pair(Code::kPermissionDenied, kExitUsage),
           std::pair(Code::kUnimplemented, kExitUsage),
           std::pair(Code::kUnavailable, kExitUnavailable),
           std::pair(Code::kResourceExhausted, kExitUnavailable),
           std::pair(Code::kFailedPrecondition, kExitFailure),
           std::pair(Code::kDataLoss, kExitFailure),
           std::pair(Code::kInternal, kExitFailure),
           std::pair(Code::kUnknown, kExitFailure),
       }) {
    EXPECT_EQ(ExitCode(absl::Status(code, "")), expected) << absl::StatusCodeToString(code);
  }
}

}  // namespace
}  // namespace moestro
