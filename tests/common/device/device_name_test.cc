#include "common/device/device_name.h"

#include <gtest/gtest.h>

namespace moestro::device {
namespace {

TEST(DeviceNameTest, OneGrammarForAllFlags) {
  EXPECT_EQ(ParseDeviceName("host"), DeviceName{});
  for (const char* text : {"cuda", "cuda:0", "0"}) EXPECT_EQ(ParseDeviceName(text), DeviceName{0}) << text;
  EXPECT_EQ(ParseDeviceName("cuda:12"), DeviceName{12});
  EXPECT_EQ(ParseDeviceName("12")->Text(), "cuda:12");
  EXPECT_EQ(DeviceName{}.Text(), "host");
}

TEST(DeviceNameTest, AnythingElseIsNoDevice) {
  for (const char* text :
       {"", "none", "cuda:", "cuda:x", "cuda:-1", "-1", "0 ", " 0", "cuda0", "cuda:cuda", "host:0"}) {
    EXPECT_EQ(ParseDeviceName(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace moestro::device
