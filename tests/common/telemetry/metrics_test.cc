#include "common/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(BucketsTest, ServiceLevelTargetsAreBounds) {
  EXPECT_THAT(TimeToFirstTokenBuckets(), testing::Contains(30.0));
  EXPECT_THAT(InterTokenBuckets(), testing::Contains(0.05));
  for (const auto& bounds :
       {TimeToFirstTokenBuckets(), InterTokenBuckets(), RequestSecondsBuckets(), TokenCountBuckets()}) {
    EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  }
}

TEST(MetricsRegistryTest, SameNameWithOtherLabelsIsAnotherMetric) {
  MetricsRegistry registry("test");
  prometheus::Counter& a = registry.AddCounter("moestro_things_total", "Things", {{"kind", "a"}});
  prometheus::Counter& b = registry.AddCounter("moestro_things_total", "Things", {{"kind", "b"}});
  a.Increment();
  EXPECT_EQ(a.Value(), 1);
  EXPECT_EQ(b.Value(), 0);
}

TEST(MetricsRegistryTest, AddressInUseIsNamed) {
  MetricsRegistry registry("test");
  EXPECT_THAT(std::string(registry.Serve("203.0.113.1:1").message()), testing::HasSubstr("203.0.113.1:1"));
}

}  // namespace
}  // namespace moestro
