#include "common/platform/shared_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "tests/common/platform/cgroup_tree.h"
#include "tests/common/platform/child_process.h"

namespace moestro {
namespace {

using moestro::testing::ChildProcess;
using Role = SharedCores::Role;

class SharedCoresTest : public testing::CgroupTree {
 protected:
  ~SharedCoresTest() override { unlink(path_.c_str()); }

  std::unique_ptr<SharedCores> Open(Role role, WorkerPool& pool) const {
    return SharedCores::Open(path_, role, pool, {.cgroup_root = root_}).value();
  }

  const std::string path_ = ::testing::TempDir() + "shared-cores-" + std::to_string(getpid()) + ".lock";
  const int cpu_ = AllowedCpus().front();
};

TEST_F(SharedCoresTest, WhoeverComputesAloneHasAllCores) {
  WorkerPool decode_pool({.threads = 2, .lent_cpus = {cpu_}}), prefill_pool({.threads = 1, .lent_cpus = {cpu_, cpu_}});
  const auto decode = Open(Role::kDecode, decode_pool);
  EXPECT_EQ(decode_pool.active_threads(), 2);
  decode->Begin();
  EXPECT_EQ(decode->Follow(), 3);  // nobody else has started
  EXPECT_EQ(decode_pool.active_threads(), 3);

  const auto prefill = Open(Role::kPrefill, prefill_pool);
  prefill->Begin();
  prefill->Begin();
  EXPECT_EQ(prefill->Follow(), 1);
  EXPECT_EQ(decode->Follow(), 2);
  EXPECT_EQ(decode_pool.active_threads(), 2);
  decode->End();
  EXPECT_EQ(prefill->Follow(), 3);
  decode->End();
  decode->Begin();
  EXPECT_EQ(prefill->Follow(), 1);
  prefill->End();
  EXPECT_EQ(decode->Follow(), 3);
}

TEST_F(SharedCoresTest, MeasuresWithItsOwnCoresAndWithAll) {
  WorkerPool decode_pool({.threads = 2, .lent_cpus = {cpu_}}), prefill_pool({.threads = 1, .lent_cpus = {cpu_}});
  const auto decode = Open(Role::kDecode, decode_pool), prefill = Open(Role::kPrefill, prefill_pool);
  std::vector<std::pair<bool, int>> calls;
  const auto measure = [&](bool alone) {
    EXPECT_EQ(prefill->Follow(), 1) << "a role that measures computes";
    calls.emplace_back(alone, decode_pool.active_threads());
    return absl::OkStatus();
  };
  EXPECT_TRUE(decode->Measure(measure).ok());
  EXPECT_EQ(calls, (std::vector<std::pair<bool, int>>{{false, 2}, {true, 3}}));
  EXPECT_EQ(decode_pool.active_threads(), 2);
  EXPECT_EQ(prefill->Follow(), 2) << "the measurement is over";

  prefill->Begin();
  calls.clear();
  EXPECT_TRUE(decode->Measure(measure).ok());
  EXPECT_EQ(calls, (std::vector<std::pair<bool, int>>{{false, 2}})) << "the others' cores are not free";
  prefill->End();
  EXPECT_EQ(decode->Measure([](bool) { return absl::InternalError("NaN"); }), absl::InternalError("NaN"));
}

// Four CPUs of which a group may use half of the time.
TEST_F(SharedCoresTest, AQuotaBoundsTheWorkers) {
  MakeVersion2("/node");
  Write("/sys/fs/cgroup/node/cpu.max", "300000 100000\n");
  const std::vector<int> lent(2, cpu_);
  WorkerPool decode_pool({.threads = 2, .lent_cpus = lent}), prefill_pool({.threads = 2, .lent_cpus = lent});
  const auto decode = Open(Role::kDecode, decode_pool), prefill = Open(Role::kPrefill, prefill_pool);
  EXPECT_EQ(decode->quota()->cpus, 3);
  decode->Begin();
  EXPECT_EQ(decode->Follow(), 3) << "prefill computes nothing";
  prefill->Begin();
  EXPECT_EQ(decode->Follow(), 2) << "and one of the three for prefill";
  EXPECT_EQ(prefill->Follow(), 1);
  EXPECT_EQ(prefill_pool.active_threads(), 1);
  std::vector<std::pair<bool, int>> calls;
  decode->End();
  EXPECT_TRUE(prefill
                  ->Measure([&](bool alone) {
                    calls.emplace_back(alone, prefill_pool.active_threads());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(calls, (std::vector<std::pair<bool, int>>{{false, 1}, {true, 3}}));

  Write("/sys/fs/cgroup/node/cpu.max", "50000 100000\n");
  decode->ReadQuota();
  EXPECT_EQ(decode->Follow(), 1) << "half a CPU";
  Write("/sys/fs/cgroup/node/cpu.max", "max 100000\n");
  decode->ReadQuota();
  EXPECT_EQ(decode->Follow(), 4);
}

TEST_F(SharedCoresTest, RolesInGroupsOfTheirOwnShareNoQuota) {
  const std::vector<int> lent(2, cpu_);
  WorkerPool decode_pool({.threads = 2, .lent_cpus = lent}), prefill_pool({.threads = 2, .lent_cpus = lent});
  MakeVersion2("/decode");
  Write("/sys/fs/cgroup/decode/cpu.max", "200000 100000\n");
  const auto decode = Open(Role::kDecode, decode_pool);
  MakeVersion2("/prefill");
  Write("/sys/fs/cgroup/prefill/cpu.max", "200000 100000\n");
  const auto prefill = Open(Role::kPrefill, prefill_pool);
  decode->Begin();
  prefill->Begin();
  EXPECT_EQ(decode->Follow(), 2);
  EXPECT_EQ(prefill->Follow(), 2);
}

TEST_F(SharedCoresTest, AChosenNumberOfThreadsIsKept) {
  MakeVersion2("/node");
  Write("/sys/fs/cgroup/node/cpu.max", "100000 100000\n");
  WorkerPool pool(3);
  const auto decode =
      SharedCores::Open(path_, Role::kDecode, pool, {.follow_quota = false, .cgroup_root = root_}).value();
  EXPECT_EQ(decode->Follow(), 3);
}

TEST_F(SharedCoresTest, MeasurementsTakeTurns) {
  WorkerPool decode_pool(1), prefill_pool(1);
  const auto decode = Open(Role::kDecode, decode_pool), prefill = Open(Role::kPrefill, prefill_pool);
  int waited = 0;
  EXPECT_TRUE(decode
                  ->Measure([&](bool) {
                    // Does not wait for ever for one that hangs.
                    return prefill->Measure(
                        [&](bool) {
                          ++waited;
                          return absl::OkStatus();
                        },
                        std::chrono::milliseconds(20));
                  })
                  .ok());
  EXPECT_EQ(waited, 1);
}

TEST_F(SharedCoresTest, ADeadRoleComputesNothing) {
  ChildProcess prefill([&](const ChildProcess::Parent& parent) {
    WorkerPool pool(1);
    const auto cores = Open(Role::kPrefill, pool);
    cores->Begin();
    parent.Send(1);
    parent.Sleep();
    return 0;
  });
  ASSERT_EQ(prefill.Receive(), 1);
  WorkerPool pool({.threads = 2, .lent_cpus = {cpu_}});
  const auto decode = Open(Role::kDecode, pool);
  EXPECT_EQ(decode->Follow(), 2);
  prefill.Kill();
  EXPECT_EQ(decode->Follow(), 3);
}

TEST_F(SharedCoresTest, AFileThatCannotBeMade) {
  WorkerPool pool(1);
  EXPECT_TRUE(
      absl::IsInvalidArgument(SharedCores::Open("/no/such/folder/cores.lock", Role::kDecode, pool, {}).status()));
}

}  // namespace
}  // namespace moestro
