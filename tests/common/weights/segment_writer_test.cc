#include "common/weights/segment_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "common/weights/segment.h"
#include "tests/common/weights/small_segment.h"

namespace moestro::weights {
namespace {

using ::testing::HasSubstr;

absl::Status CreateStatus(std::vector<TensorPlan> plan, const std::string& fingerprint = kSmallFingerprint) {
  const AlignedMemory memory(1 << 20);
  return SegmentWriter::CreateInMemory(memory.data(), memory.size(), 1, fingerprint, SmallSpec(), plan).status();
}

TEST(SegmentWriter, RefusesPlansThatCannotBeStored) {
  using enum TensorLayout;
  const TensorPlan good = {"a", DType::kBF16, kPacked, 4, 4, false};
  EXPECT_TRUE(CreateStatus({good}).ok());
  const std::vector<std::vector<TensorPlan>> bad = {
      {},
      {good, good},
      {{"b", DType::kBF16, kPacked, 4, 4, false}, good},
      {{"", DType::kBF16, kPacked, 4, 4, false}},
      {{std::string(112, 'a'), DType::kBF16, kPacked, 4, 4, false}},
      {{std::string("a\0b", 3), DType::kBF16, kPacked, 4, 4, false}},
      {{"a", DType::kBF16, kPacked, 0, 4, false}},
      {{"a", DType::kBF16, kPacked, 4, -4, false}},
      {{"a", DType::kBF16, kPacked, std::numeric_limits<int64_t>::max(), 4, false}},
      {{"a", DType::kBF16, kPacked, 4, 4, true}},
      {{"a", DType::kF8E4M3, kPacked, 4, 4, false}},
      {{"a", DType::kF8E4M3, kRowMajor, 4, 4, true}},
      {{"a", DType::kF32, kPacked, 4, 4, false}},
      {{"a", DType::kI8, kPacked, 4, 64, false}},
      {{"a", DType::kI8, kRowMajor, 4, 64, true}},
      {{"a", DType::kF16, kPacked, 4, 4, true}},
      {{"a", DType::kQ8_0, kPacked, 4, 32, true}},
      {{"a", DType::kQ8_0, kPacked, 4, 33, false}},
      {{"a", DType::kQ4K, kPacked, 4, 128, false}},
      {{"a", DType::kI4G128, kRowMajor, 4, 64, false}},
  };
  for (const auto& plan : bad) EXPECT_EQ(CreateStatus(plan).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateStatus({good}, "abc").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateStatus({good}, std::string(32, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CreateStatus({{std::string(111, 'a'), DType::kBF16, kPacked, 4, 4, false}}).ok());
  for (auto type = static_cast<uint32_t>(DType::kF16); type <= static_cast<uint32_t>(kLastDType); ++type) {
    const auto dtype = static_cast<DType>(type);
    EXPECT_TRUE(CreateStatus({{"a", dtype, kPacked, 4, 256, dtype == DType::kI8}}).ok()) << DTypeName(dtype);
    EXPECT_EQ(CreateStatus({{"a", dtype, kRowMajor, 4, 256, false}}).ok(), dtype != DType::kI8) << DTypeName(dtype);
  }
}

TEST(SegmentWriter, RequiredBytesSaturates) {
  const int64_t huge = kMaxTensorDimension;
  const std::vector<TensorPlan> plan(64, {"a", DType::kF32, TensorLayout::kRowMajor, huge, huge, false});
  EXPECT_EQ(SegmentWriter::RequiredBytes(plan), std::numeric_limits<int64_t>::max());
}

TEST(SegmentWriter, TooLittleMemoryIsRefused) {
  const auto plan = SmallPlan();
  const AlignedMemory memory(SegmentWriter::RequiredBytes(plan) + 4096);
  const auto create = [&](int64_t skip, int64_t bytes) {
    return SegmentWriter::CreateInMemory(memory.data() + skip, bytes, 1, kSmallFingerprint, SmallSpec(), plan)
        .status()
        .code();
  };
  EXPECT_EQ(create(0, memory.size() - 4097), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(64, memory.size() - 64), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create(0, memory.size() - 4096), absl::StatusCode::kOk);
}

TEST(SegmentWriter, UnwrittenTensorIsNotPublished) {
  const auto plan = SmallPlan();
  const AlignedMemory memory(SegmentWriter::RequiredBytes(plan));
  auto writer = SegmentWriter::CreateInMemory(memory.data(), memory.size(), 1, kSmallFingerprint, SmallSpec(), plan);
  ASSERT_TRUE(writer.ok());
  (*writer)->SetChecksum(0, 1);
  EXPECT_THAT(std::string((*writer)->Finish().message()), HasSubstr("bf16_rows"));
  EXPECT_EQ((*writer)->header().state.load(), static_cast<uint32_t>(SegmentState::kLoading));
  writer->reset();
  const auto opened = WeightSegment::FromMemory(memory.data(), memory.size());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition) << "a destroyed writer fails its segment";
}

TEST(SegmentWriter, FailDoesNotTouchAReadySegment) {
  const auto plan = SmallPlan();
  const AlignedMemory memory(SegmentWriter::RequiredBytes(plan));
  auto writer = SegmentWriter::CreateInMemory(memory.data(), memory.size(), 1, kSmallFingerprint, SmallSpec(), plan);
  ASSERT_TRUE(writer.ok());
  FillSmallSegment(**writer);
  ASSERT_TRUE((*writer)->Finish().ok());
  (*writer)->Fail();
  EXPECT_TRUE(WeightSegment::FromMemory(memory.data(), memory.size()).ok());
}

TEST(SegmentWriter, ThreadsMayReportProgressTogether) {
  const auto plan = SmallPlan();
  const AlignedMemory memory(SegmentWriter::RequiredBytes(plan));
  auto writer = SegmentWriter::CreateInMemory(memory.data(), memory.size(), 1, kSmallFingerprint, SmallSpec(), plan);
  ASSERT_TRUE(writer.ok());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < plan.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) (*writer)->AddProgress(1);
      (*writer)->SetChecksum(t, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*writer)->header().loaded_bytes.load(), 7000);
  EXPECT_TRUE((*writer)->Finish().ok());
}

class SharedSegment : public ::testing::Test {
 protected:
  SharedSegment() : name_("moestro.test" + std::to_string(getpid()) + ".weights.segment_writer_test") {}
  ~SharedSegment() override { SharedMemory::Unlink(name_).IgnoreError(); }

  absl::StatusOr<std::unique_ptr<SegmentWriter>> Create() {
    return SegmentWriter::Create(name_, 3, kSmallFingerprint, SmallSpec(), SmallPlan());
  }
  std::string name_;
};

TEST_F(SharedSegment, IsReadableOnceFinished) {
  auto writer = Create();
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(WeightSegment::Open(name_).status().code(), absl::StatusCode::kUnavailable);
  FillSmallSegment(**writer);
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto segment = WeightSegment::Open(name_);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_TRUE((*segment)->VerifyData().ok());
  EXPECT_EQ((*segment)->memory().name(), name_);
  EXPECT_EQ(Create().status().code(), absl::StatusCode::kAlreadyExists);
}

// This machine may have only one node: both domains are then placed there, and all else is as with two.
TEST_F(SharedSegment, PlacementIsRecorded) {
  const NumaDomain here{AllowedCpus(), {ReadNumaNodes().front().id}};
  auto writer = SegmentWriter::Create(name_, 3, kSmallFingerprint, SmallSpec(), SmallPlan(), {.domains = {here, here}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  FillSmallSegment(**writer);
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto segment = WeightSegment::Open(name_);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ((*segment)->numa_domains(), 2);
}

TEST_F(SharedSegment, InterruptedReservationLeavesNothing) {
  const SegmentMemoryOptions options{.threads = 1, .watch = [](int64_t) { return absl::CancelledError("enough"); }};
  const auto writer = SegmentWriter::Create(name_, 3, kSmallFingerprint, SmallSpec(), SmallPlan(), options);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(SharedMemory::List(name_)->empty());
}

TEST_F(SharedSegment, ReadySegmentIsAdoptedAfterItsOwner) {
  {
    auto writer = Create();
    ASSERT_TRUE(writer.ok()) << writer.status();
    FillSmallSegment(**writer);
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  const auto other = SegmentWriter::Adopt(name_, std::string(32, '0'));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(kSmallFingerprint));
  auto adopted = SegmentWriter::Adopt(name_, kSmallFingerprint);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ((*adopted)->directory().size(), 7u);
  EXPECT_EQ((*adopted)->header().generation, 3u);
  adopted->reset();
  const auto segment = WeightSegment::Open(name_);
  ASSERT_TRUE(segment.ok()) << "giving up an adopted segment leaves it ready: " << segment.status();
  EXPECT_TRUE((*segment)->VerifyData().ok());
}

TEST_F(SharedSegment, UnfinishedSegmentIsNotAdopted) {
  Create().IgnoreError();  // destroyed unfinished
  EXPECT_EQ(SegmentWriter::Adopt(name_, kSmallFingerprint).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SharedSegment, AbsentSegmentIsNotFound) {
  EXPECT_EQ(SegmentWriter::Adopt(name_, kSmallFingerprint).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WeightSegment::Open(name_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace moestro::weights
