// The emulated GPU's checks find their bugs, and nothing in the same kernels without bugs.
#include "tests/cuda/emulation/planted_bugs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/kernels/numbers.h"

namespace moestro::cuda {
namespace {

using testing::HasSubstr;

constexpr int64_t kThreads = 64;

class PlantedBugsTest : public testing::Test {
 protected:
  // Runs without findings and gives `expected` of each i.
  template <typename Expected>
  void ExpectRight(LaunchResult result, const Expected& expected) {
    ASSERT_TRUE(Ran(result));
    const std::vector<float> got = out_.Download();
    for (int64_t i = 0; i < kThreads; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], expected(i)) << i;
  }
  void ExpectFinding(LaunchResult result, const std::string& text) {
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(Synchronize(), HasSubstr(text));
  }
  float Number(int64_t i) const { return numbers_[static_cast<size_t>(i)]; }

  const std::vector<float> numbers_ = RandomFloats(kThreads, 1);
  const DeviceArray<float> in_{numbers_};
  const DeviceArray<float> out_{kThreads};
};

TEST_F(PlantedBugsTest, AccessOutOfBounds) {
  ExpectRight(LaunchCopy(in_.get(), out_.get()), [&](int64_t i) { return Number(i); });
  const DeviceArray<float> short_in(RandomFloats(kThreads - 1, 1)), short_out(kThreads - 1);
  ExpectFinding(LaunchCopy(short_in.get(), out_.get()),
                "thread (63, 0, 0): read of 4 bytes outside of device memory, "
                "252 bytes from the beginning of a buffer of 252 bytes");
  ExpectFinding(LaunchCopy(in_.get(), short_out.get()), "write of 4 bytes outside of device memory");
  ExpectFinding(LaunchCopy(nullptr, out_.get()), "read of 4 bytes outside of device memory");
}

TEST_F(PlantedBugsTest, BeforeTheKernelBefore) {
  ExpectRight(LaunchBegin(PlantedBegin::kRight, in_.get(), out_.get()), [&](int64_t i) { return Number(i); });
  for (const PlantedBegin how : {PlantedBegin::kReadsBefore, PlantedBegin::kWritesBefore}) {
    ExpectFinding(LaunchBegin(how, in_.get(), out_.get()), "access to memory before BeginKernel");
  }
  ExpectFinding(LaunchBegin(PlantedBegin::kOneReturnsBefore, in_.get(), out_.get()),
                "thread (40, 0, 0): ends without BeginKernel");
  ExpectFinding(LaunchBegin(PlantedBegin::kPrefetchesTooFar, in_.get(), out_.get()),
                "prefetch outside of device memory");
}

TEST_F(PlantedBugsTest, MissingBarrier) {
  ExpectRight(LaunchReversal(Reversal::kRight, in_.get(), out_.get()), [&](int64_t i) { return Number(63 - i); });
  ExpectFinding(LaunchReversal(Reversal::kNoBarrier, in_.get(), out_.get()), "which this block has not written");
  ExpectFinding(LaunchReversal(Reversal::kReadsUnwritten, in_.get(), out_.get()), "which this block has not written");
  ExpectFinding(LaunchReversal(Reversal::kReadsTooFar, in_.get(), out_.get()), "outside of device memory");
}

TEST_F(PlantedBugsTest, BarrierThatSomeMiss) {
  ExpectFinding(LaunchReversal(Reversal::kOneReturns, in_.get(), out_.get()), "which has returned");
  ExpectFinding(LaunchReversal(Reversal::kTwoPlaces, in_.get(), out_.get()), "waits at __syncthreads");
}

TEST_F(PlantedBugsTest, CopiesInFlight) {
  ExpectRight(LaunchStaging(PlantedStaging::kRight, in_.get(), in_.get(), out_.get()),
              [&](int64_t i) { return Number(i) + Number(i); });
  ExpectFinding(LaunchStaging(PlantedStaging::kNoWait, in_.get(), in_.get(), out_.get()),
                "while cp.async is filling it");
  ExpectFinding(LaunchStaging(PlantedStaging::kNoBarrierBeforeReuse, in_.get(), in_.get(), out_.get()), "races with");
}

TEST_F(PlantedBugsTest, CopiesEndWithTheirBlock) {
  for (int launch = 0; launch < 2; ++launch) {
    ExpectRight(LaunchStaging(PlantedStaging::kEndsInFlight, in_.get(), in_.get(), out_.get()),
                [&](int64_t i) { return Number(i) + Number(i); });
  }
}

TEST_F(PlantedBugsTest, MissingSyncWarp) {
  ExpectRight(LaunchNeighbours(Neighbours::kRight, in_.get(), out_.get()),
              [&](int64_t i) { return Number(i) + Number(i ^ 1); });
  ExpectFinding(LaunchNeighbours(Neighbours::kNoSyncWarp, in_.get(), out_.get()), "of shared memory");
}

// The emulator keeps one record for bytes that are used together.
TEST_F(PlantedBugsTest, BytesOfOneWord) {
  std::vector<uint8_t> in(kThreads);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(3 * i + 1);
  const DeviceArray<uint8_t> device_in(in);
  const auto expect = [&](PlantedBytes how, const std::string& finding) {
    const DeviceArray<uint8_t> bytes(2 * kThreads);
    ExpectFinding(LaunchBytes(how, device_in.get(), bytes.get()), finding);
  };
  const DeviceArray<uint8_t> filled(std::vector<uint8_t>(2 * kThreads + 16, 77));
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_TRUE(Ran(LaunchBytes(PlantedBytes::kRight, device_in.get(), filled.get())));
    const std::vector<uint8_t> got = filled.Download();
    for (size_t i = 0; i < 2 * kThreads; ++i) EXPECT_EQ(got[i], in[i / 2]) << i;
    EXPECT_EQ(got[2 * kThreads], 77);
  }
  expect(PlantedBytes::kReadsNeighbours,
         "thread (1, 0, 0): read of shared memory, byte 0, races with a write of thread 0");
  expect(PlantedBytes::kWritesWhatOthersRead, "thread (0, 0, 0): write of shared memory, byte 65, races with a read");
  expect(PlantedBytes::kReadsUnwritten, "read of global memory that nobody has written, byte 15 of");
  expect(PlantedBytes::kReadsOtherBlocks, "block (1, 0, 0) thread (7, 0, 0): read of global memory that another block");
  expect(PlantedBytes::kWritesOtherBlocks,
         "block (1, 0, 0) thread (7, 0, 0): write of global memory that another block");
}

// Results of A [16, depth] times B [depth, 8] that are not what the numbers give.
template <typename T, typename Value>
int CountWrong(const std::vector<T>& a, const std::vector<T>& b, Value value, const std::vector<float>& got) {
  const size_t depth = b.size() / 8;
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (size_t k = 0; k < depth; ++k) {
      const double term = double{value(a[i / 8 * depth + k])} * value(b[k * 8 + i % 8]);
      sum += term;
      magnitude += std::fabs(term);
    }
    wrong += std::fabs(got[i] - sum) > Gamma(kMmaRoundings) * magnitude ? 1 : 0;
  }
  return wrong;
}

// No finding: the result is wrong, which the comparison with the truth reveals.
TEST_F(PlantedBugsTest, WrongFragmentIndex) {
  const std::vector<uint16_t> a = RandomBf16(16 * 16, 2), b = RandomBf16(16 * 8, 3);
  std::vector<uint8_t> a8, b8;
  for (const float number : RandomFloats(16 * 32, 4)) a8.push_back(ToE4M3(number));
  for (const float number : RandomFloats(32 * 8, 5)) b8.push_back(ToE4M3(number));
  const DeviceArray<uint16_t> device_a(a), device_b(b);
  const DeviceArray<uint8_t> device_a8(a8), device_b8(b8);
  const DeviceArray<float> product(16 * 8);
  for (const bool exchanged : {false, true}) {
    ASSERT_TRUE(Ran(LaunchProduct(exchanged, device_a.get(), device_b.get(), product.get())));
    EXPECT_EQ(CountWrong(a, b, FromBf16, product.Download()), exchanged ? 128 : 0);
    ASSERT_TRUE(Ran(LaunchFp8Product(exchanged, device_a8.get(), device_b8.get(), product.get())));
    EXPECT_EQ(CountWrong(a8, b8, FromE4M3, product.Download()), exchanged ? 128 : 0);
  }
}

TEST_F(PlantedBugsTest, ProductsOfWarpGroups) {
  constexpr int kRows = 64, kDepth = 32, kColumns = 16;
  std::vector<uint8_t> a, b;
  for (const float number : RandomFloats(kRows * kDepth, 6)) a.push_back(ToE4M3(number));
  for (const float number : RandomFloats(kColumns * kDepth, 7)) b.push_back(ToE4M3(number));
  const DeviceArray<uint8_t> device_a(a), device_b(b);
  const DeviceArray<float> out(kRows * kColumns);
  const auto launch = [&](PlantedProduct how) {
    return LaunchGroupProduct(how, device_a.get(), device_b.get(), out.get());
  };
  const auto count_wrong = [&](PlantedProduct how) {
    EXPECT_TRUE(Ran(launch(how)));
    const std::vector<float> got = out.Download();
    int wrong = 0;
    for (int i = 0; i < kRows * kColumns; ++i) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < kDepth; ++k) {
        const double term = double{FromE4M3(a[static_cast<size_t>(i / kColumns * kDepth + k)])} *
                            FromE4M3(b[static_cast<size_t>(i % kColumns * kDepth + k)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      wrong += std::fabs(got[static_cast<size_t>(i)] - sum) <= Gamma(kMmaRoundings) * magnitude ? 0 : 1;
    }
    return wrong;
  };
  EXPECT_EQ(count_wrong(PlantedProduct::kRight), 0);
  EXPECT_GT(count_wrong(PlantedProduct::kExchanged), kRows * kColumns * 9 / 10);
  EXPECT_GT(count_wrong(PlantedProduct::kStride), kRows * kColumns / 3);  // columns 8 .. 15 are the first ones
  ExpectFinding(launch(PlantedProduct::kReadsSums), "access to an accumulator of wgmma before the wait");
  ExpectFinding(launch(PlantedProduct::kNoCommit), "access to an accumulator of wgmma before the wait");
  ExpectFinding(launch(PlantedProduct::kChangesOperand), "write to operand A of wgmma before the wait");
  ExpectFinding(launch(PlantedProduct::kOverwritesColumns), "which wgmma may be reading");
  ExpectFinding(launch(PlantedProduct::kNoFence), "without wgmma.fence between");
  ExpectFinding(launch(PlantedProduct::kNoFenceOfWrites), "has not called fence.proxy.async since it wrote it");
  ExpectFinding(launch(PlantedProduct::kNoBarrier), "no barrier lies between");
  ExpectFinding(launch(PlantedProduct::kUnaligned), "not aligned to 8 of them");
  // Half of the chunks that it reads, nobody has written.
  ExpectFinding(launch(PlantedProduct::kNotSwizzled), "which this block has not written");
}

TEST_F(PlantedBugsTest, BlocksThatMeetInGlobalMemory) {
  const DeviceArray<float> sum(std::vector<float>(1, 0.0f));
  ASSERT_TRUE(Ran(LaunchSum(true, sum.get())));
  EXPECT_EQ(sum.Download()[0], 2.0f);
  ExpectFinding(LaunchSum(false, sum.get()), "that another block of the same launch has written");
}

TEST_F(PlantedBugsTest, FlagsForTheHost) {
  struct {
    float data[kThreads] = {};
    uint32_t flag = 0;
  } host;
  emulation::GlobalMemory::Get().AddHost(&host, sizeof host, /*writable=*/true);
  ASSERT_TRUE(Ran(LaunchFlag(PlantedFlag::kRight, in_.get(), host.data, &host.flag)));
  EXPECT_EQ(host.flag, 1u);
  EXPECT_TRUE(std::ranges::equal(host.data, numbers_));
  ExpectFinding(LaunchFlag(PlantedFlag::kFirst, in_.get(), host.data, &host.flag),
                "write to host memory behind the block's flag");
  ExpectFinding(LaunchFlag(PlantedFlag::kNoBarrier, in_.get(), host.data, &host.flag),
                "has written to host memory: no barrier lies between");
  ExpectFinding(LaunchFlag(PlantedFlag::kRight, in_.get(), host.data, reinterpret_cast<uint32_t*>(out_.get())),
                "a flag that is not in host memory");
  emulation::GlobalMemory::Get().AddHost(&host, sizeof host, /*writable=*/false);
  ExpectFinding(LaunchFlag(PlantedFlag::kRight, in_.get(), host.data, &host.flag), "outside of device memory");
  emulation::GlobalMemory::Get().RemoveHost(&host);
}

TEST_F(PlantedBugsTest, LoadsOfWhatTheHostWrites) {
  const HostArray<float> host(std::vector<float>(numbers_.begin(), numbers_.begin() + 16));
  ASSERT_TRUE(Ran(LaunchReadHost(false, host.get(), out_.get())));
  const std::vector<float> got = out_.Download();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 16, numbers_.begin()));
  ExpectFinding(LaunchReadHost(true, host.get(), out_.get()), "an ordinary load of memory that the host writes");
  ExpectFinding(LaunchReadHost(false, host.get() + 1, out_.get()), "not a multiple of 16");
  ExpectFinding(LaunchReadHost(false, host.get() + 4, out_.get()), "outside of device memory");
}

TEST_F(PlantedBugsTest, ReadOfMemoryNobodyWrote) {
  const DeviceArray<float> empty(kThreads);
  ExpectFinding(LaunchCopy(empty.get(), out_.get()), "read of global memory that nobody has written");
}

TEST_F(PlantedBugsTest, WarpAtTwoPlaces) {
  ExpectFinding(LaunchDivergentShuffle(out_.get()), "of the same warp at __shfl_xor_sync");
}

TEST_F(PlantedBugsTest, RunsOnAfterAFinding) {
  ExpectFinding(LaunchCopy(nullptr, out_.get()), "outside of device memory");
  ExpectRight(LaunchCopy(in_.get(), out_.get()), [&](int64_t i) { return Number(i); });
}

}  // namespace
}  // namespace moestro::cuda
