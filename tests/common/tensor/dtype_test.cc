#include "common/tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>

namespace moestro {
namespace {

TEST(E4M3Test, KnownValues) {
  EXPECT_EQ(FromE4M3(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(FromE4M3(0x80)));
  EXPECT_EQ(FromE4M3(0x01), 0x1p-9f);
  EXPECT_EQ(FromE4M3(0x08), 0x1p-6f);
  EXPECT_EQ(FromE4M3(0x38), 1.0f);
  EXPECT_EQ(FromE4M3(0x77), 240.0f);
  EXPECT_EQ(FromE4M3(0x7e), 448.0f);
  EXPECT_EQ(FromE4M3(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(FromE4M3(0x7f)));
  EXPECT_TRUE(std::isnan(FromE4M3(0xff)));
}

TEST(E4M3Test, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) EXPECT_EQ(ToE4M3(FromE4M3(static_cast<uint8_t>(code))), code);
}

TEST(E4M3Test, RoundsToNearestEvenAndSaturates) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = FromE4M3(static_cast<uint8_t>(code));
    const float high = FromE4M3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(ToE4M3(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(ToE4M3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(ToE4M3(std::nextafter(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(ToE4M3(1e9f), 0x7e);
  EXPECT_EQ(ToE4M3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(ToE4M3(1e-20f), 0x00);
}

TEST(Bf16Test, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f), 0x3f80);             // tie, to even
  EXPECT_EQ(ToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);         // tie, to even
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // above the tie
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromBf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(ToBf16(value), bits);
  }
}

TEST(F16, EveryCodeIsExact) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const int exponent = static_cast<int>(code >> 10 & 31);
    const double mantissa = code & 1023;
    const float value = FromF16(static_cast<uint16_t>(code));
    ASSERT_EQ(std::signbit(value), (code & 0x8000) != 0) << code;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << code;
      ASSERT_FALSE(std::isfinite(value)) << code;
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1 + mantissa / 1024, exponent - 15);
    ASSERT_EQ(std::fabs(static_cast<double>(value)), magnitude) << code;
  }
}

// Every finite value, and what lies halfway to the next one: to the even code.
TEST(F16, RoundsToNearestEven) {
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    const auto half = static_cast<uint16_t>(code);
    const float value = FromF16(half);
    ASSERT_EQ(ToF16(value), half) << code;
    ASSERT_EQ(ToF16(-value), half | 0x8000) << code;
    const float next = code == 0x7bff ? 65536.0F : FromF16(static_cast<uint16_t>(code + 1));
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(ToF16(middle), code + code % 2) << code;  // above the largest: the code of infinity
    ASSERT_EQ(ToF16(std::nextafter(middle, 0.0F)), half) << code;
    ASSERT_EQ(ToF16(std::nextafter(middle, 1e9F)), code + 1) << code;
  }
  EXPECT_EQ(ToF16(1e30F), 0x7c00);
  EXPECT_EQ(ToF16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_TRUE(std::isnan(FromF16(ToF16(std::nanf("")))));
}

}  // namespace
}  // namespace moestro
