#include "common/weights/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "common/platform/cpu/cpu_features.h"

namespace moestro::weights {
namespace {

std::vector<uint8_t> SomeBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

TEST(ChecksumStream, OfPartsIsThatOfTheWhole) {
  const std::vector<uint8_t> bytes = SomeBytes(100'000);
  ChecksumStream stream;
  for (const size_t part : {size_t{1}, size_t{63}, size_t{4096}, size_t{99'999}}) {
    for (size_t begin = 0; begin < bytes.size(); begin += part) {
      stream.Append(std::span(bytes).subspan(begin, std::min(part, bytes.size() - begin)));
    }
    EXPECT_EQ(stream.Finish(), BytesChecksum(bytes)) << "parts of " << part;
  }
}

using Registers = std::array<std::array<uint64_t, 4>, 16>;

template <size_t... kIndex>
[[gnu::target("avx")]] void ReadYmm(Registers& out, std::index_sequence<kIndex...>) {
  (..., [&] { asm volatile("vmovdqu %%ymm%c1, %0" : "=m"(out[kIndex]) : "i"(kIndex)); }());
}

// Otherwise SSE code that runs afterwards takes 100 ns for each call of libm.
TEST(Checksum, LeavesTheUpperHalvesOfVectorRegistersUnused) {
  if (!DetectCpuFeatures().avx2) GTEST_SKIP() << "this CPU has no AVX2";
  const std::vector<uint8_t> bytes = SomeBytes(100'000);
  const auto expect_unused = [](const char* after) {
    Registers registers;
    ReadYmm(registers, std::make_index_sequence<16>());
    for (size_t i = 0; i < registers.size(); ++i) {
      EXPECT_EQ(registers[i][2], 0u) << "ymm" << i << " after " << after;
      EXPECT_EQ(registers[i][3], 0u) << "ymm" << i << " after " << after;
    }
  };
  BytesChecksum(bytes);
  expect_unused("BytesChecksum");
  ChecksumStream stream;
  stream.Append(bytes);
  expect_unused("Append");
  stream.Finish();
  expect_unused("Finish");
}

}  // namespace
}  // namespace moestro::weights
