// Additions to rows: of parts, biases, gated rows and experts.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/int8_inputs.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

// Exact additions in the order of the parts; bytes after the last element stay unchanged.
TEST(CudaAdditionsTest, SumPartsInOrder) {
  for (const int64_t n : {1, 255, 257, 1000}) {
    for (int64_t count = 0; count <= kMaxParts; ++count) {
      SCOPED_TRACE(::testing::Message() << count << " parts of " << n);
      std::vector<std::vector<float>> parts;
      std::vector<std::unique_ptr<DeviceArray<float>>> device_parts;
      const DeviceArray<float> out(n + 1);
      SumPartsArgs args{.count = count, .n = n, .out = out.get()};
      for (int64_t part = 0; part < count; ++part) {
        parts.push_back(RandomFloats(n, static_cast<uint32_t>(20 + part), 100.0f));
        device_parts.push_back(std::make_unique<DeviceArray<float>>(parts.back()));
        args.parts[part] = device_parts.back()->get();
      }
      ASSERT_TRUE(Ran(LaunchSumParts(args, DeviceStream())));
      const std::vector<float> got = out.Download();
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        float sum = 0;
        for (const std::vector<float>& part : parts) sum += part[i];
        ASSERT_EQ(got[i], sum) << i;
      }
      EXPECT_TRUE(std::isnan(got.back()));
    }
  }
  EXPECT_EQ(LaunchSumParts({.count = kMaxParts + 1, .n = 1}, DeviceStream()).error, kInvalidArgument);
}

// Exact additions to each row; what follows the last one stays unchanged.
TEST(CudaAdditionsTest, AddsABiasToEveryRow) {
  for (const int64_t rows : {1, 3, 1025}) {
    for (const int64_t n : {1, 255, 520}) {
      const std::vector<float> bias = RandomFloats(n, 31), x = RandomFloats(rows * n + 1, 32);
      const DeviceArray<float> device_bias(bias), device_x(x);
      ASSERT_TRUE(Ran(LaunchAddBias(device_bias.get(), rows, n, device_x.get(), DeviceStream())));
      const std::vector<float> got = device_x.Download();
      for (int64_t i = 0; i < rows * n; ++i) ASSERT_EQ(got[i], x[i] + bias[i % n]) << rows << " x " << n << ": " << i;
      EXPECT_EQ(got.back(), x.back());
    }
  }
}

// A sigmoid and a fused multiply-add: a few roundings of numbers below 8.
TEST(CudaAdditionsTest, AddsRowsWeightedByTheirGates) {
  for (const int64_t rows : {1, 3, 1030}) {
    for (const int64_t n : {1, 255, 520}) {
      const std::vector<float> x = RandomFloats(rows * n, 33), sum = RandomFloats(rows * n + 1, 34);
      const std::vector<float> gates = RandomFloats(rows, 35);
      const DeviceArray<float> device_x(x), device_gates(gates), device_sum(sum);
      ASSERT_TRUE(Ran(LaunchAddGated(device_x.get(), device_gates.get(), rows, n, device_sum.get(), DeviceStream())));
      const std::vector<float> got = device_sum.Download();
      for (int64_t i = 0; i < rows * n; ++i) {
        const double weight = 1 / (1 + std::exp(-static_cast<double>(gates[i / n])));
        ASSERT_NEAR(got[i], sum[i] + weight * x[i], 8 * 0x1p-21) << rows << " x " << n << ": " << i;
      }
      EXPECT_EQ(got.back(), sum.back());
    }
  }
}

// With a shared expert and its gates or without, with a norm or without: the bits of the operations by themselves.
TEST(CudaAdditionsTest, AddsExpertsAndNorms) {
  constexpr int64_t kRows = 3;
  for (const int64_t n : {4, 252, 8196, 10000}) {  // a block's loads at once: 8192
    const std::vector<float> routed = RandomFloats(kRows * n, 44), shared = RandomFloats(kRows * n, 45);
    const std::vector<float> before = RandomFloats(kRows * n, 46);
    const HostArray<float> host_routed(routed);
    const DeviceArray<float> device_shared(shared), weight(RandomFloats(n, 47));
    const DeviceArray<float> gates(RandomFloats(kRows, 48));
    for (const auto& [has_shared, has_gates] : {std::pair(false, false), {true, false}, {true, true}}) {
      const DeviceArray<float> sums(routed), residual(before), added(before), also_added(before);
      if (has_gates) {
        ASSERT_TRUE(Ran(LaunchAddGated(device_shared.get(), gates.get(), kRows, n, sums.get(), DeviceStream())));
      } else if (has_shared) {
        ASSERT_TRUE(Ran(LaunchAdd(device_shared.get(), kRows * n, sums.get(), DeviceStream())));
      }
      ASSERT_TRUE(Ran(LaunchAdd(sums.get(), kRows * n, residual.get(), DeviceStream())));
      const DeviceArray<uint16_t> normed(kRows * n), norm_out(kRows * n);
      RmsNormArgs norm{.x = residual.get(),
                       .x_stride = n,
                       .weight = weight.get(),
                       .rows = kRows,
                       .n = n,
                       .eps = 1e-6f,
                       .out_bf16 = norm_out.get(),
                       .out_bf16_stride = n};
      const int64_t code_stride = Int8Stride(n);
      const DeviceArray<uint16_t> codes(kRows * code_stride), norm_codes(kRows * code_stride);
      norm.out_int8 = norm_codes.get();
      norm.out_int8_stride = code_stride;
      ASSERT_TRUE(Ran(LaunchRmsNorm(norm, DeviceStream())));
      AddExpertsArgs args{.routed = host_routed.get(),
                          .shared = has_shared ? device_shared.get() : nullptr,
                          .gates = has_gates ? gates.get() : nullptr,
                          .rows = kRows,
                          .hidden = n,
                          .residual = added.get()};
      norm.x = added.get();
      norm.out_bf16 = normed.get();
      norm.out_int8 = codes.get();
      ASSERT_TRUE(Ran(LaunchAddExperts(args, norm, DeviceStream())));
      EXPECT_EQ(added.Download(), residual.Download()) << n << " numbers";
      EXPECT_EQ(normed.Download(), norm_out.Download()) << n << " numbers";
      EXPECT_EQ(codes.Download(), norm_codes.Download()) << n << " numbers";
      args.residual = also_added.get();
      EXPECT_EQ(LaunchAddExperts(args, norm, DeviceStream()).error, kInvalidArgument) << "the norm of another array";
      norm.weight = nullptr;
      ASSERT_TRUE(Ran(LaunchAddExperts(args, norm, DeviceStream())));
      EXPECT_EQ(also_added.Download(), residual.Download()) << n << " numbers";
      args.hidden = n - 1;
      EXPECT_EQ(LaunchAddExperts(args, norm, DeviceStream()).error, kInvalidArgument) << "not in fours";
      args.hidden = n;
      args.routed += 1;
      EXPECT_EQ(LaunchAddExperts(args, norm, DeviceStream()).error, kInvalidArgument) << "not in aligned fours";
    }
  }
}

}  // namespace
}  // namespace moestro::cuda
