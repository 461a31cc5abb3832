#include "common/platform/instance.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(InstanceTest, AcceptsPlainNames) {
  for (const char* name : {"a", "default", "node-1_B", "12345678901234567890123456789012"}) {
    EXPECT_TRUE(ValidateInstanceName(name).ok()) << name;
  }
}

TEST(InstanceTest, RejectsWhatCouldLeaveTheNameSpace) {
  for (const std::string name : {"", "a.b", "a/b", "..", "a b", "\xc3\xa4", "123456789012345678901234567890123"}) {
    EXPECT_EQ(ValidateInstanceName(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(ValidateInstanceName(std::string("a\0b", 3)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(InstanceTest, Names) {
  EXPECT_EQ(InstancePrefix("main"), "moestro.main.");
  EXPECT_EQ(WeightSegmentName("main", "0123456789abcdef0123456789abcdef", 7), "moestro.main.weights.0123456789ab.7");
  EXPECT_EQ(KvPoolName("main", 18446744073709551615u), "moestro.main.kv.18446744073709551615");
}

}  // namespace
}  // namespace moestro
