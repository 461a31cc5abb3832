#include "common/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <vector>

#include "common/telemetry/http_get.h"

namespace moestro {
namespace {

using boost::asio::ip::tcp;

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

TEST(MetricsRegistryTest, ClientsThatSayNothingDoNotKeepOthersWaiting) {
  boost::asio::io_context context;
  const tcp::endpoint address =
      tcp::acceptor(context, {boost::asio::ip::address_v4::loopback(), 0}).local_endpoint();  // free from here on
  MetricsRegistry registry("test");
  registry.AddCounter("moestro_things_total", "Things");
  ASSERT_TRUE(registry.Serve("127.0.0.1:" + std::to_string(address.port())).ok());
  std::vector<tcp::socket> silent;  // more than there are workers; in sequence they would take six seconds
  for (int i = 0; i < 6; ++i) silent.emplace_back(context).connect(address);
  const auto text = HttpGet(*ParseUrl("127.0.0.1:" + std::to_string(address.port())), /*timeout_seconds=*/5);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, testing::HasSubstr("moestro_things_total"));
}

}  // namespace
}  // namespace moestro
