#include "services/router/http/shares.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

std::string Network(const char* address) { return NetworkOf(boost::asio::ip::make_address(address)); }

TEST(NetworkOf, IsWhatOneClientHas) {
  EXPECT_EQ(Network("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(Network("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(Network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(Network("2001:db8:1:2:ffff::1"), "2001:db8:1:2::/64");
  EXPECT_NE(Network("2001:db8:1:3::1"), Network("2001:db8:1:2::1"));
}

TEST(NetworkOf, ThisMachineHasNone) {
  for (const char* address : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"}) EXPECT_EQ(Network(address), "");
}

TEST(Shares, AQuarterAndASixteenth) {
  EXPECT_EQ(MostOfOneNetwork(4096), 1024);
  EXPECT_EQ(MostOfOneNetwork(7), 1);
  EXPECT_EQ(MostOfOneNetwork(1), 1);
  EXPECT_EQ(ReserveForKeys(4096), 256);
  EXPECT_EQ(ReserveForKeys(15), 0) << "of so few, none is kept";
}

}  // namespace
}  // namespace moestro::router
