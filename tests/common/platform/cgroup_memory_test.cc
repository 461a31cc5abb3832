#include "common/platform/cgroup_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/platform/process_memory.h"
#include "tests/common/platform/cgroup_tree.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

class CgroupMemoryTest : public testing::CgroupTree {
 protected:
  CgroupMemoryTest() { Write("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n"); }
};

TEST_F(CgroupMemoryTest, WithoutGroupsTheMachineCounts) {
  EXPECT_TRUE(ReadCgroupMemory(root_).empty());
  const AvailableMemory available = ReadAvailableMemory(root_).value();
  EXPECT_EQ(available.bytes, 8 * kGib);
  EXPECT_EQ(available.reason, "this machine has 8.00 GiB of memory available");
}

TEST_F(CgroupMemoryTest, Version2CountsEveryGroupUpTheTree) {
  MakeVersion2("/system.slice/moestro@decode.service");
  Write("/sys/fs/cgroup/system.slice/moestro@decode.service/memory.max", "max\n");
  Write("/sys/fs/cgroup/system.slice/moestro@decode.service/memory.high", "max\n");
  Write("/sys/fs/cgroup/system.slice/moestro@decode.service/memory.current", "1048576\n");
  Write("/sys/fs/cgroup/system.slice/memory.max", std::to_string(4 * kGib) + "\n");
  Write("/sys/fs/cgroup/system.slice/memory.current", std::to_string(3 * kGib) + "\n");
  Write("/sys/fs/cgroup/system.slice/memory.stat",
        "anon 5\nfile 999999999999\ninactive_file 536870912\nactive_file 536870912\ninactive_anon 7\n");
  const std::vector<CgroupMemory> groups = ReadCgroupMemory(root_);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].limit_file, "/sys/fs/cgroup/system.slice/memory.max");
  EXPECT_EQ(groups[0].limit_bytes, 4 * kGib);
  EXPECT_EQ(groups[0].used_bytes, 2 * kGib) << "without the file cache";
  const AvailableMemory available = ReadAvailableMemory(root_).value();
  EXPECT_EQ(available.bytes, 2 * kGib);
  EXPECT_EQ(available.reason,
            "the limit of 4.00 GiB in /sys/fs/cgroup/system.slice/memory.max leaves 2.00 GiB of memory");
}

TEST_F(CgroupMemoryTest, Version2CountsTheLowerOfTwoLimitsAndTheTightestGroup) {
  MakeVersion2("/a/b");
  Write("/sys/fs/cgroup/a/b/memory.max", std::to_string(6 * kGib));
  Write("/sys/fs/cgroup/a/b/memory.high", std::to_string(5 * kGib));
  Write("/sys/fs/cgroup/a/b/memory.current", std::to_string(kGib));
  Write("/sys/fs/cgroup/a/memory.max", std::to_string(6 * kGib));
  Write("/sys/fs/cgroup/a/memory.current", std::to_string(kGib));
  const std::vector<CgroupMemory> groups = ReadCgroupMemory(root_);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].limit_file, "/sys/fs/cgroup/a/b/memory.high");
  EXPECT_EQ(groups[1].limit_file, "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(ReadAvailableMemory(root_)->bytes, 4 * kGib);
}

TEST_F(CgroupMemoryTest, Version2InAContainerIsTheMountItself) {
  MakeVersion2("/");
  Write("/sys/fs/cgroup/memory.max", std::to_string(2 * kGib));
  Write("/sys/fs/cgroup/memory.current", std::to_string(3 * kGib));
  EXPECT_EQ(ReadAvailableMemory(root_)->bytes, 0) << "over its limit";
  MakeVersion2("/../../outside");
  EXPECT_EQ(ReadCgroupMemory(root_).size(), 1u);
}

TEST_F(CgroupMemoryTest, Version1IsFoundByItsController) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc/inner\n3:cpuset:/\n0::/\n");
  Write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n");
  Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "1000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(kGib) + "\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(kGib / 2) + "\n");
  Write("/sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 268435456\ntotal_active_file 0\n");
  EXPECT_EQ(ReadCgroupMemory(root_).size(), 2u);
  const AvailableMemory available = ReadAvailableMemory(root_).value();
  EXPECT_EQ(available.bytes, kGib * 3 / 4);
  EXPECT_THAT(available.reason, HasSubstr("in /sys/fs/cgroup/memory/memory.limit_in_bytes leaves 0.75 GiB"));
}

TEST_F(CgroupMemoryTest, WhatCannotBeReadIsNoLimit) {
  MakeVersion2("/a");
  EXPECT_TRUE(ReadCgroupMemory(root_).empty());
  Write("/sys/fs/cgroup/a/memory.max", "many");
  Write("/sys/fs/cgroup/a/memory.current", "few");
  EXPECT_TRUE(ReadCgroupMemory(root_).empty());
  Write("/proc/self/mountinfo", "nonsense\n - \n31 - cgroup2\n");
  Write("/proc/self/cgroup", "nonsense\n::\n");
  EXPECT_EQ(ReadAvailableMemory(root_)->bytes, 8 * kGib);
}

}  // namespace
}  // namespace moestro
