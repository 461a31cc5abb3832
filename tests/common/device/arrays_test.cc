#include "common/device/arrays.h"

#include <gtest/gtest.h>

#include "common/device/host/host_device.h"

namespace moestro::device {
namespace {

struct Arrays {
  float* floats = nullptr;
  uint16_t* numbers = nullptr;
  int64_t* none = nullptr;

  auto Visitor() {
    return [this](const auto& take) {
      take(floats, 100);
      take(none, 0);
      take(numbers, 30);
    };
  }
};

TEST(AllocateArrays, EachThatIsNotEmptyUntilTheyGo) {
  const auto device = NewHostDevice({.memory_bytes = 1000});
  Arrays arrays;
  EXPECT_EQ(ArrayBytes(arrays.Visitor()), 100 * 4 + 30 * 2);
  {
    const auto memory = AllocateArrays(*device, "arrays", arrays.Visitor());
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(device->memory_used(), 460);
    EXPECT_EQ(reinterpret_cast<uint8_t*>(arrays.floats), memory->at(0).data());
    EXPECT_EQ(reinterpret_cast<uint8_t*>(arrays.numbers), memory->at(1).data());
    EXPECT_EQ(arrays.none, nullptr);
  }
  EXPECT_EQ(device->memory_used(), 0);
}

TEST(AllocateArrays, WhatDoesNotFitIsAnError) {
  const auto device = NewHostDevice({.memory_bytes = 459});
  Arrays arrays;
  const absl::Status status = AllocateArrays(*device, "arrays", arrays.Visitor()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("arrays: 60 bytes"), std::string_view::npos) << status;
  EXPECT_EQ(device->memory_used(), 0);
}

}  // namespace
}  // namespace moestro::device
