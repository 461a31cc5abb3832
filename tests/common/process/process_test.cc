#include "common/process/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace moestro {
namespace {

// A supervisor restarts a role unless it ended with kExitUsage.
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

// In a child process: a hard limit cannot be raised again.
int DescriptorsOfAChild(rlim_t soft, rlim_t hard, absl::StatusCode expected) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{.rlim_cur = soft, .rlim_max = hard};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || RaiseDescriptorLimit().code() != expected) _exit(1);
    _exit(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == hard ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(RaiseDescriptorLimitTest, TakesWhatTheHardLimitAllows) {
  EXPECT_EQ(DescriptorsOfAChild(1024, 5000, absl::StatusCode::kOk), 0);
  EXPECT_EQ(DescriptorsOfAChild(1000, 1000, absl::StatusCode::kUnavailable), 0);
}

}  // namespace
}  // namespace moestro
