// Every wrapper of ptx.cuh against the PTX ISA, restated here in terms of matrices. The emulated device passes with the
// models of emulation/include/ptx_model.h, a GPU with the instructions, so models and instructions agree.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/cuda/kernels/numbers.h"
#include "tests/cuda/kernels/ptx_probe.h"

namespace moestro::cuda {
namespace {

// Packs matrix elements into the registers of fragments: kBits each, `depth` the inner dimension.
struct Fragments {
  std::vector<uint32_t> a = std::vector<uint32_t>(32 * 4);  // of A [16, depth]
  std::vector<uint32_t> b = std::vector<uint32_t>(32 * 2);  // of B [depth, 8]
};
template <typename Element>
Fragments Fill(int bits, int depth, const std::vector<Element>& a, const std::vector<Element>& b) {
  Fragments f;
  const int per_register = 32 / bits;
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      const int half = k / (depth / 2), in_half = k % (depth / 2);
      const int lane = row % 8 * 4 + in_half / per_register;
      const int r = row / 8 + 2 * half;
      f.a[static_cast<size_t>(lane * 4 + r)] |= static_cast<uint32_t>(a[static_cast<size_t>(row * depth + k)])
                                                << (in_half % per_register * bits);
      if (row >= 8) continue;
      const int column = row;  // of B
      f.b[static_cast<size_t>(lane * 2 + half)] |= static_cast<uint32_t>(b[static_cast<size_t>(k * 8 + column)])
                                                   << (in_half % per_register * bits);
    }
  }
  return f;
}

// Where lanes have element (row, column) of C and D [16, 8].
size_t PlaceOfSum(int row, int column) {
  return static_cast<size_t>((row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2);
}

template <typename Element, typename Value>
void CheckMma(int bits, int depth, const std::vector<Element>& a, const std::vector<Element>& b, Value value,
              LaunchResult (*probe)(const uint32_t*, const uint32_t*, float*), int roundings) {
  const Fragments fragments = Fill(bits, depth, a, b);
  const std::vector<float> c = RandomFloats(16 * 8, 3);  // [16, 8]
  std::vector<float> lanes(32 * 4);
  for (int i = 0; i < 128; ++i) lanes[PlaceOfSum(i / 8, i % 8)] = c[static_cast<size_t>(i)];
  const DeviceArray<uint32_t> device_a(fragments.a), device_b(fragments.b);
  const DeviceArray<float> d(lanes);
  ASSERT_TRUE(Ran(probe(device_a.get(), device_b.get(), d.get())));
  const std::vector<float> got = d.Download();
  for (int i = 0; i < 128; ++i) {
    double sum = c[static_cast<size_t>(i)], magnitude = std::fabs(sum);
    for (int k = 0; k < depth; ++k) {
      const double term =
          double{value(a[static_cast<size_t>(i / 8 * depth + k)])} * value(b[static_cast<size_t>(k * 8 + i % 8)]);
      sum += term;
      magnitude += std::fabs(term);
    }
    ASSERT_NEAR(got[PlaceOfSum(i / 8, i % 8)], sum, Gamma(roundings) * magnitude)
        << "row " << i / 8 << " column " << i % 8;
  }
}

TEST(PtxTest, MmaBf16) {
  CheckMma(16, 16, RandomBf16(16 * 16, 1), RandomBf16(16 * 8, 2), FromBf16, ProbeMmaBf16, kMmaRoundings);
}

// Some generations' FP8 tensor cores keep as few as 14 bits of a sum (DeepSeek-V3's report, section 3.5.2): 2^-13 of
// the greatest term for each of 33.
TEST(PtxTest, MmaE4M3) {
  if (!HasFp8Mma()) GTEST_SKIP() << DeviceName() << " has no FP8 mma";
  std::mt19937 random(4);
  std::vector<uint8_t> a(16 * 32), b(32 * 8);
  for (std::vector<uint8_t>* codes : {&a, &b}) {
    for (uint8_t& code : *codes) code = static_cast<uint8_t>(random() % 0x7f | (random() % 2) << 7);
  }
  CheckMma(8, 32, a, b, FromE4M3, ProbeMmaE4M3, 33 << 11);
}

TEST(PtxTest, MmaS8IsExact) {
  std::mt19937 random(8);
  for (const bool extreme : {false, true}) {
    std::vector<uint8_t> a(16 * 32), b(32 * 8);
    for (std::vector<uint8_t>* codes : {&a, &b}) {
      for (uint8_t& code : *codes) code = extreme ? 0x80 : static_cast<uint8_t>(random());
    }
    const Fragments fragments = Fill(8, 32, a, b);
    std::vector<int32_t> lanes(32 * 4);
    for (int32_t& c : lanes) c = static_cast<int32_t>(random());
    const DeviceArray<uint32_t> device_a(fragments.a), device_b(fragments.b);
    const DeviceArray<int32_t> d(lanes);
    ASSERT_TRUE(Ran(ProbeMmaS8(device_a.get(), device_b.get(), d.get())));
    const std::vector<int32_t> got = d.Download();
    for (int i = 0; i < 128; ++i) {
      auto sum = static_cast<uint32_t>(lanes[PlaceOfSum(i / 8, i % 8)]);
      for (int k = 0; k < 32; ++k) {
        sum += static_cast<uint32_t>(static_cast<int8_t>(a[static_cast<size_t>(i / 8 * 32 + k)]) *
                                     static_cast<int8_t>(b[static_cast<size_t>(k * 8 + i % 8)]));
      }
      ASSERT_EQ(static_cast<uint32_t>(got[PlaceOfSum(i / 8, i % 8)]), sum) << "row " << i / 8 << " column " << i % 8;
    }
  }
}

// A product of four warps: A's elements are codes of `bits`, row-major [64, depth], rows' those of 128 bytes a column,
// or transposed a row of B.
void CheckProduct(int bits, int columns, bool transposed, double (*value)(uint32_t code), int roundings,
                  const std::function<LaunchResult(const uint32_t*, const uint8_t*, int, bool, float*)>& probe) {
  const int depth = 256 / bits, per_register = 32 / bits, bytes = bits / 8;
  std::mt19937 random(6);
  const auto code = [&] {  // of numbers, none a NaN or an infinity
    return bits == 8 ? random() % 0x7f | (random() % 2) << 7
                     : uint32_t{ToBf16(static_cast<float>(random() % 2001) - 1000)};
  };
  std::vector<uint32_t> a(static_cast<size_t>(64 * depth)), registers(128 * 4);
  for (uint32_t& element : a) element = code();
  for (int row = 0; row < 64; ++row) {
    for (int k = 0; k < depth; ++k) {
      const int in_half = k % (depth / 2);
      const int lane = row / 16 * 32 + row % 8 * 4 + in_half / per_register, r = row % 16 / 8 + 2 * (k / (depth / 2));
      registers[static_cast<size_t>(lane * 4 + r)] |= a[static_cast<size_t>(row * depth + k)]
                                                      << (in_half % per_register * bits);
    }
  }
  std::vector<uint8_t> rows(static_cast<size_t>(columns * 128));
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(bytes)) {
    const uint32_t element = code();
    std::memcpy(&rows[at], &element, static_cast<size_t>(bytes));
  }
  const std::vector<float> c = RandomFloats(64 * columns, 3);  // as lanes have it
  const DeviceArray<uint32_t> device_a(registers);
  const DeviceArray<uint8_t> device_rows(rows);
  for (int part = 0; part < 4; ++part) {
    const bool add = part % 2 == 0;
    const DeviceArray<float> d(c);
    ASSERT_TRUE(Ran(probe(device_a.get(), device_rows.get(), part, add, d.get())));
    const std::vector<float> got = d.Download();
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < columns; ++column) {
        const int lane = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        const auto at = static_cast<size_t>(lane * (columns / 2) + column / 8 * 4 + row % 16 / 8 * 2 + column % 2);
        double sum = add ? c[at] : 0, magnitude = std::fabs(sum);
        for (int k = 0; k < depth; ++k) {
          uint32_t element = 0;
          const int of_b =
              transposed ? (part * depth + k) * 128 + column * bytes : column * 128 + part * 32 + k * bytes;
          std::memcpy(&element, &rows[static_cast<size_t>(of_b)], static_cast<size_t>(bytes));
          const double term = value(a[static_cast<size_t>(row * depth + k)]) * value(element);
          sum += term;
          magnitude += std::fabs(term);
        }
        ASSERT_NEAR(got[at], sum, Gamma(roundings) * magnitude) << "row " << row << " column " << column;
      }
    }
  }
}

TEST(PtxTest, ProductsOfWarpGroups) {
  if (!SetWarpGroups(true)) GTEST_SKIP() << DeviceName() << " has no products of groups of warps";
  ResetWarpGroups();
  const auto e4m3 = [](uint32_t code) { return double{FromE4M3(static_cast<uint8_t>(code))}; };
  for (const int columns : {16, 64}) {
    CheckProduct(8, columns, false, e4m3, 33 << 11,
                 [columns](auto... operands) { return ProbeProductE4M3(columns, operands...); });
  }
  for (const bool transposed : {false, true}) {
    CheckProduct(
        16, 64, transposed, [](uint32_t code) { return double{FromBf16(static_cast<uint16_t>(code))}; }, kMmaRoundings,
        [transposed](auto... operands) { return ProbeProductBf16(transposed, operands...); });
  }
}

TEST(PtxTest, LoadMatrix) {
  std::vector<uint16_t> rows(32 * 8);
  std::iota(rows.begin(), rows.end(), uint16_t{100});
  std::vector<int32_t> order(32);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const DeviceArray<uint16_t> device_rows(rows);
  const DeviceArray<int32_t> device_order(order);
  for (const bool transposed : {false, true}) {
    const DeviceArray<uint32_t> registers(32 * 4);
    ASSERT_TRUE(Ran(ProbeLoadMatrix(device_rows.get(), device_order.get(), transposed, registers.get())));
    const std::vector<uint32_t> got = registers.Download();
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        uint32_t expected = 0;
        for (int i = 0; i < 2; ++i) {
          const int row = transposed ? 2 * (lane % 4) + i : lane / 4,
                    column = transposed ? lane / 4 : 2 * (lane % 4) + i;
          const int at = order[static_cast<size_t>(8 * matrix + row)] * 8 + column;
          expected |= uint32_t{rows[static_cast<size_t>(at)]} << (16 * i);
        }
        ASSERT_EQ(got[static_cast<size_t>(4 * lane + matrix)], expected) << "lane " << lane << " matrix " << matrix;
      }
    }
  }
}

void CheckCopyAsync(size_t bytes, int32_t most_valid, int32_t step,
                    LaunchResult (*probe)(const uint8_t*, const int32_t*, uint8_t*)) {
  std::vector<uint8_t> from(32 * bytes);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i % 255 + 1);
  std::vector<int32_t> valid(32);
  for (int lane = 0; lane < 32; ++lane) valid[static_cast<size_t>(lane)] = lane * step % (most_valid + step);
  const DeviceArray<uint8_t> device_from(from), to(static_cast<int64_t>(from.size()));
  const DeviceArray<int32_t> device_valid(valid);
  ASSERT_TRUE(Ran(probe(device_from.get(), device_valid.get(), to.get())));
  const std::vector<uint8_t> got = to.Download();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], static_cast<int32_t>(i % bytes) < valid[i / bytes] ? from[i] : 0) << "lane " << i / bytes;
  }
}
TEST(PtxTest, CopyAsyncFillsWithZeros) {
  CheckCopyAsync(16, 16, 1, ProbeCopyAsync);
  CheckCopyAsync(8, 8, 1, ProbeCopyAsync8);
  CheckCopyAsync(4, 4, 4, ProbeCopyAsync4);
}

std::vector<float> InterestingFloats() {
  std::vector<float> values;
  for (const uint32_t bits : {0u, 0x80000000u, 1u, 0x00008000u, 0x00018000u, 0x007fffffu, 0x3f808000u, 0x3f818000u,
                              0x3f807fffu, 0x3f808001u, 0x7f7fffffu, 0x7f800000u, 0xff800000u}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  std::mt19937 random(5);
  while (values.size() < 1000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

TEST(PtxTest, PackBf16RoundsToNearestEven) {
  std::vector<float> low = InterestingFloats(), high(low.rbegin(), low.rend());
  low.push_back(std::numeric_limits<float>::quiet_NaN());
  high.push_back(1.0f);
  const auto n = static_cast<int64_t>(low.size());
  const DeviceArray<float> device_low(low), device_high(high);
  const DeviceArray<uint32_t> out(n);
  ASSERT_TRUE(Ran(ProbePackBf16(device_low.get(), device_high.get(), n, out.get())));
  const std::vector<uint32_t> got = out.Download();
  for (size_t i = 0; i + 1 < low.size(); ++i) {
    ASSERT_EQ(got[i], uint32_t{ToBf16(low[i])} | uint32_t{ToBf16(high[i])} << 16) << low[i] << " " << high[i];
  }
  EXPECT_EQ(got.back(), 0x3f807fffu);
}

// Numbers around all of E4M3's, midpoints between them, and what is beyond.
TEST(PtxTest, PackE4M3RoundsToNearestEvenAndSaturates) {
  if (!HasFp8Mma()) GTEST_SKIP() << DeviceName() << " has no E4M3";
  std::vector<float> low = InterestingFloats();
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float here = FromE4M3(static_cast<uint8_t>(code)), next = FromE4M3(static_cast<uint8_t>(code + 1));
    for (const float value : {here, (here + next) / 2}) {
      for (const float near : {std::nextafterf(value, 0), value, std::nextafterf(value, 1000)}) low.push_back(near);
    }
  }
  std::vector<float> high;
  for (const float value : low) high.push_back(-value);
  const auto n = static_cast<int64_t>(low.size());
  const DeviceArray<float> device_low(low), device_high(high);
  const DeviceArray<uint32_t> out(n);
  ASSERT_TRUE(Ran(ProbePackE4M3(device_low.get(), device_high.get(), n, out.get())));
  const std::vector<uint32_t> got = out.Download();
  for (size_t i = 0; i < low.size(); ++i) {
    ASSERT_EQ(got[i], ToE4M3(low[i]) | uint32_t{ToE4M3(high[i])} << 8) << low[i];
  }
}

// The result is the BF16 number nearest to the exact one: no neighbour is nearer.
TEST(PtxTest, FmaBf16x2RoundsOnceAndKeepsSubnormals) {
  std::mt19937 random(6);
  std::vector<uint32_t> a, b, c;
  for (int i = 0; i < 1000; ++i) {
    // Exponents for which sums stay finite, including subnormals.
    const auto number = [&] {
      return static_cast<uint32_t>(
                 ToBf16(std::ldexp(static_cast<float>(random() % 256), -static_cast<int>(random() % 80)))) |
             (random() % 2 << 15);
    };
    a.push_back(number() | number() << 16);
    b.push_back(number() | number() << 16);
    c.push_back(number() | number() << 16);
  }
  for (uint32_t subnormal = 0; subnormal < 0x80; ++subnormal) {  // as used by the expansion of FP8
    a.push_back(subnormal | (subnormal | 0x8000) << 16);
    b.push_back(0x7b807b80u);
    c.push_back(0x80008000u);
  }
  const auto n = static_cast<int64_t>(a.size());
  const DeviceArray<uint32_t> device_a(a), device_b(b), device_c(c), out(n);
  ASSERT_TRUE(Ran(ProbeFmaBf16x2(device_a.get(), device_b.get(), device_c.get(), n, out.get())));
  const std::vector<uint32_t> got = out.Download();
  for (size_t i = 0; i < a.size(); ++i) {
    for (const int shift : {0, 16}) {
      const auto half = [shift](uint32_t bits) { return static_cast<uint16_t>(bits >> shift); };
      const double exact =
          std::fma(double{FromBf16(half(a[i]))}, double{FromBf16(half(b[i]))}, double{FromBf16(half(c[i]))});
      const uint16_t result = half(got[i]);
      const double error = std::fabs(FromBf16(result) - exact);
      ASSERT_LE(error, std::fabs(FromBf16(static_cast<uint16_t>(result + 1)) - exact)) << i;
      if ((result & 0x7fff) != 0) {
        ASSERT_LE(error, std::fabs(FromBf16(static_cast<uint16_t>(result - 1)) - exact)) << i;
      }
    }
  }
}

// As the watch for NaN codes of FP8 uses it.
TEST(PtxTest, MaxAbsBf16x2) {
  std::mt19937 random(9);
  std::vector<uint32_t> a, b;
  for (int i = 0; i < 1000; ++i) {
    const auto number = [&] { return static_cast<uint32_t>(random() % 0x7f80); };
    a.push_back(number() | number() << 16);
    b.push_back((number() | number() << 16) ^ (static_cast<uint32_t>(random()) & 0x80008000u));
  }
  const auto n = static_cast<int64_t>(a.size());
  const DeviceArray<uint32_t> device_a(a), device_b(b), out(n);
  ASSERT_TRUE(Ran(ProbeMaxAbsBf16x2(device_a.get(), device_b.get(), n, out.get())));
  const std::vector<uint32_t> got = out.Download();
  for (size_t i = 0; i < a.size(); ++i) {
    for (const int shift : {0, 16}) {
      const auto half = [shift](uint32_t bits) { return FromBf16(static_cast<uint16_t>(bits >> shift)); };
      ASSERT_EQ(std::fabs(half(got[i])), std::max(half(a[i]), std::fabs(half(b[i])))) << i;  // with either sign
    }
  }
}

TEST(PtxTest, Exp2WithinItsBound) {
  std::vector<float> x = {0, -1, 1, -126, -127, -200, 127, -std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 1000; ++i) x.push_back(-0.0937f * static_cast<float>(i));
  const auto n = static_cast<int64_t>(x.size());
  const DeviceArray<float> device_x(x), out(n);
  ASSERT_TRUE(Ran(ProbeExp2(device_x.get(), n, out.get())));
  const std::vector<float> got = out.Download();
  for (size_t i = 0; i < x.size(); ++i) {
    const double truth = std::exp2(double{x[i]});
    ASSERT_NEAR(got[i], truth, 0x1p-22 * truth + (truth < 0x1p-126 ? truth : 0)) << x[i];
  }
}

TEST(PtxTest, ExpandsAllFp8Codes) {
  const DeviceArray<uint32_t> out(4 * 256);
  ASSERT_TRUE(Ran(ProbeExpandE4M3(out.get())));
  const std::vector<uint32_t> got = out.Download();
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t codes[4] = {i, 255 - i, i ^ 0x55, i ^ 0xaa};
    uint32_t nan = 0;
    for (uint32_t byte = 0; byte < 4; ++byte) {
      const auto code = static_cast<uint8_t>(codes[byte]);
      const bool is_nan = (code & 0x7f) == 0x7f;
      const float value = is_nan ? (code == 0x7f ? 480.0f : -480.0f) : FromE4M3(code);
      ASSERT_EQ(static_cast<uint16_t>(got[4 * i + byte / 2] >> (byte % 2 * 16)), ToBf16(value))
          << int{code};  // the sign of zero too
      if (is_nan) nan |= 0x80u << (8 * byte);
    }
    ASSERT_EQ(got[4 * i + 2], nan) << i;
    ASSERT_EQ(got[4 * i + 3] & nan, nan) << i;  // a neighbour of NaN may be told, too
    ASSERT_EQ(got[4 * i + 3] == 0, nan == 0) << i;
  }
}

}  // namespace
}  // namespace moestro::cuda
