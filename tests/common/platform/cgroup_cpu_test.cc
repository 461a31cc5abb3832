#include "common/platform/cgroup_cpu.h"

#include <gtest/gtest.h>

#include "tests/common/platform/cgroup_tree.h"

namespace moestro {
namespace {

using CgroupCpuTest = testing::CgroupTree;

TEST_F(CgroupCpuTest, WithoutGroupsOrLimitsThereIsNoQuota) {
  EXPECT_FALSE(ReadCpuQuota(root_));
  MakeVersion2("/a/b");
  EXPECT_FALSE(ReadCpuQuota(root_));
  for (const char* text : {"max 100000", "", "x y", "100000", "100000 0", "-1 100000", "0 100000"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_FALSE(ReadCpuQuota(root_)) << text;
  }
}

TEST_F(CgroupCpuTest, Version2TakesTheLowestUpTheTree) {
  MakeVersion2("/a/b");
  Write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCpuQuota(root_)->cpus, 4);
  const uint64_t own = ReadCpuQuota(root_)->group;
  Write("/sys/fs/cgroup/a/cpu.max", "75000 50000\n");
  const CpuQuota quota = *ReadCpuQuota(root_);
  EXPECT_EQ(quota.cpus, 1.5);
  EXPECT_EQ(quota.file, "/sys/fs/cgroup/a/cpu.max");
  EXPECT_NE(quota.group, own);
  MakeVersion2("/a/c");  // a neighbour shares it
  EXPECT_EQ(ReadCpuQuota(root_)->group, quota.group);
}

TEST_F(CgroupCpuTest, Version1HasTwoFiles) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc/inner\n0::/\n");
  Write("/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  Write("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(ReadCpuQuota(root_));
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota(root_)->cpus, 0.5);
  EXPECT_EQ(ReadCpuQuota(root_)->file, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
}

TEST_F(CgroupCpuTest, PathsAreComparedByTheirParts) {
  Write("/proc/self/mountinfo", "31 23 0:28 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  Write("/sys/fs/cgroup/my..group/cpu.max", "50000 100000\n");
  const auto cpus = [&](const std::string& group) {
    Write("/proc/self/cgroup", "0::" + group + "\n");
    return ReadCpuQuota(root_)->cpus;
  };
  EXPECT_EQ(cpus("/a"), 1);
  EXPECT_EQ(cpus("/ab/c"), 1) << "another group: the mount is all that is seen";
  EXPECT_EQ(cpus("/a/my..group"), 0.5);
  EXPECT_EQ(cpus("/../b"), 1);
}

TEST_F(CgroupCpuTest, WholeThreadsAndOneAtLeast) {
  EXPECT_EQ(ThreadsOf({.cpus = 0.1}), 1);
  EXPECT_EQ(ThreadsOf({.cpus = 1.9}), 1);
  EXPECT_EQ(ThreadsOf({.cpus = 2}), 2);
  EXPECT_EQ(ThreadsOf({.cpus = 1e300}), 1000000);
  EXPECT_GE(UsableCpus(), 1);
}

}  // namespace
}  // namespace moestro
