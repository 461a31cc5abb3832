#include "common/process/cpu_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/platform/cpu_list.h"
#include "common/platform/cpu_split.h"
#include "common/platform/numa.h"

namespace moestro {
namespace {

TEST(CpuOptionsTest, DefaultsFollowTheMachine) {
  ASSERT_TRUE(ValidateCpuOptions({}).ok());
  const WorkerPool::Options pool = PoolOptions({});
  EXPECT_EQ(pool.threads, static_cast<int>(AllowedCpus().size()));
  EXPECT_EQ(pool.domains, static_cast<int>(ReadNumaNodes().size()));
  EXPECT_EQ(PoolOptions({.threads = 1}).domains, 1);
  EXPECT_EQ(PoolOptions({.threads = 7, .numa_domains = 3}).domains, 3);
}

TEST(CpuOptionsTest, ErrorsNameTheFlag) {
  EXPECT_TRUE(ValidateCpuOptions({.threads = 2, .numa_domains = 2}).ok());
  EXPECT_THAT(ValidateCpuOptions({.threads = 2, .numa_domains = 3}).message(),
              testing::HasSubstr("--numa-domains 3: must be 1 to 2, the number of --threads"));
  EXPECT_THAT(ValidateCpuOptions({.numa_domains = -1}).message(), testing::HasSubstr("--numa-domains -1"));
  EXPECT_THAT(ValidateCpuOptions({.numa_domains = 2000}).message(), testing::HasSubstr("--numa-domains 2000"));
  EXPECT_THAT(ValidateCpuOptions({.threads = -1}).message(), testing::HasSubstr("--threads -1"));
}

// Whether `holds` is true in a child process: affinity and niceness cannot be undone.
bool InChild(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(CpuShareTest, AutoIsTheSplitOfTheAllowedCpus) {
  const std::vector<int> allowed = AllowedCpus();
  const CpuSplit split = SplitCpus(ReadCpuPlaces(allowed));
  EXPECT_TRUE(InChild([&] { return TakeCpuShare({}, CpuRole::kDecode).ok() && AllowedCpus() == split.decode; }));
  EXPECT_TRUE(InChild([&] { return TakeCpuShare({}, CpuRole::kPrefill).ok() && AllowedCpus() == split.prefill; }));
  EXPECT_TRUE(InChild([&] { return TakeCpuShare({}, CpuRole::kAll)->empty() && AllowedCpus() == allowed; }));
  EXPECT_TRUE(InChild([&] { return TakeCpuShare({.cpus = "all"}, CpuRole::kPrefill)->empty(); }));
  const CpuSplit few = SplitCpus(ReadCpuPlaces(allowed), CpuSplitKind::kFewForPrefill);
  EXPECT_TRUE(InChild(
      [&] { return TakeCpuShare({.cpus = "auto-gpu"}, CpuRole::kDecode).ok() && AllowedCpus() == few.decode; }));
  EXPECT_TRUE(InChild(
      [&] { return TakeCpuShare({.cpus = "auto-gpu"}, CpuRole::kPrefill).ok() && AllowedCpus() == few.prefill; }));
}

TEST(CpuShareTest, AListBoundsTheProcessAndItsDefaults) {
  const std::vector<int> allowed = AllowedCpus();
  const std::vector<int> others(allowed.begin() + 1, allowed.end());
  EXPECT_TRUE(InChild([&] {
    const auto left = TakeCpuShare({.cpus = std::to_string(allowed.front())}, CpuRole::kDecode);
    return left.ok() && *left == others && AllowedCpus().size() == 1 && PoolOptions({}).threads == 1;
  }));
}

TEST(CpuShareTest, ErrorsNameTheFlagTheCpuAndWhatThereIs) {
  const std::vector<int> allowed = AllowedCpus();
  const std::string there = FormatCpuList(allowed);
  const std::string absent = std::to_string(allowed.back() + 1);
  const auto message = [](const CpuShare& share) {
    const auto result = TakeCpuShare(share, CpuRole::kDecode);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
    return std::string(result.status().message());
  };
  EXPECT_EQ(message({.cpus = absent}),
            "--cpus " + absent + ": this process has no CPU " + absent + "; it may use " + there);
  EXPECT_THAT(message({.cpus = "0-x"}), testing::HasSubstr("--cpus 0-x: '0-x' is not a CPU"));
  EXPECT_THAT(message({.cpus = ""}), testing::HasSubstr("--cpus "));
  EXPECT_THAT(message({.cpus = "half"}), testing::HasSubstr("or use auto, auto-gpu or all"));
  EXPECT_THAT(message({.nice = 20}), testing::HasSubstr("--nice 20: must be -20 to 19"));
  EXPECT_EQ(AllowedCpus(), allowed);
}

TEST(CpuShareTest, NiceIsAddedAndLessThanZeroNeedsPrivileges) {
  const int before = getpriority(PRIO_PROCESS, 0);
  EXPECT_TRUE(InChild([&] {
    return TakeCpuShare({.nice = 3}, CpuRole::kAll).ok() && getpriority(PRIO_PROCESS, 0) == std::min(before + 3, 19);
  }));
  EXPECT_TRUE(
      InChild([&] { return TakeCpuShare({.nice = 19}, CpuRole::kAll).ok() && getpriority(PRIO_PROCESS, 0) == 19; }));
  EXPECT_TRUE(InChild([] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) return false;
    const absl::Status status = TakeCpuShare({.nice = -1}, CpuRole::kAll).status();
    return absl::IsInvalidArgument(status) && std::string(status.message()).starts_with("--nice -1: not permitted");
  }));
}

}  // namespace
}  // namespace moestro
