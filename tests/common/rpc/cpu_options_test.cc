#include "common/rpc/cpu_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moestro
