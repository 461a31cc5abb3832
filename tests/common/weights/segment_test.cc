#include "common/weights/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/weights/checksum.h"
#include "tests/common/weights/small_segment.h"

namespace moestro::weights {
namespace {

using ::testing::HasSubstr;

SegmentHeader& HeaderOf(const AlignedMemory& memory) { return *reinterpret_cast<SegmentHeader*>(memory.data()); }

TEST(WeightSegment, FindsEveryTensorWithItsContents) {
  const AlignedMemory memory = SmallSegment();
  const auto segment = WeightSegment::FromMemory(memory.data(), memory.size());
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ((*segment)->directory().size(), 7u);
  EXPECT_EQ((*segment)->spec().hidden_size, 6);
  EXPECT_EQ((*segment)->header().generation, 3u);
  EXPECT_STREQ((*segment)->header().fingerprint, kSmallFingerprint);

  const auto fp8 = (*segment)->Find("fp8_packed");
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ(fp8->bytes, 192 * 132);
  EXPECT_EQ(fp8->data[5], (5 * 7 + 3) % 119);
  EXPECT_EQ(fp8->scales[3], 4.0f);
  const PackedMatrix packed = fp8->packed();
  EXPECT_EQ(packed.rows, 130);
  EXPECT_EQ(packed.cols, 129);
  EXPECT_EQ(packed.scales, fp8->scales);
  EXPECT_EQ(packed.exceptions, fp8->exceptions);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.exceptions) % 64, 0u);
  for (int i = 0; i < 3 * 2; ++i) EXPECT_EQ(packed.exceptions[i], ~0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.data) % 4096, 0u);

  const auto vector = (*segment)->Find("f32_rows");
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ(vector->rows, 1);
  EXPECT_EQ(vector->bytes, 20);
  EXPECT_EQ(vector->scales, nullptr);
  EXPECT_EQ(vector->exceptions, nullptr);
}

TEST(WeightSegment, AbsentTensorIsNamed) {
  const AlignedMemory memory = SmallSegment();
  const auto segment = WeightSegment::FromMemory(memory.data(), memory.size());
  ASSERT_TRUE(segment.ok());
  for (const char* name : {"", "a", "bf16", "bf16_packed2", "zzz"}) {
    const auto found = (*segment)->Find(name);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(std::string("'") + name + "'"));
  }
}

TEST(WeightSegment, VerifyDataFindsOneFlippedBit) {
  const AlignedMemory memory = SmallSegment();
  const auto segment = WeightSegment::FromMemory(memory.data(), memory.size());
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE((*segment)->VerifyData().ok());
  for (const TensorEntry& entry : (*segment)->directory()) {
    std::vector<int64_t> offsets = {entry.data_offset, entry.data_offset + entry.data_bytes - 1};
    if (entry.scale_bytes > 0) offsets.push_back(entry.scale_offset + entry.scale_bytes - 1);
    if (entry.exception_bytes > 0) offsets.push_back(entry.exception_offset);
    for (const int64_t offset : offsets) {
      memory.data()[offset] ^= 0x10;
      const absl::Status status = (*segment)->VerifyData();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr(entry.name));
      memory.data()[offset] ^= 0x10;
    }
  }
  EXPECT_TRUE((*segment)->VerifyData().ok());
}

TEST(WeightSegment, SlicesInAnyOtherOrderHaveAnotherChecksum) {
  const std::vector<uint64_t> slices = {1, 2};
  const std::vector<uint64_t> swapped = {2, 1};
  const std::vector<uint8_t> scales = {0, 0, 0, 0};
  EXPECT_NE(CombineChecksums(slices, {}, {}), CombineChecksums(swapped, {}, {}));
  EXPECT_NE(CombineChecksums(slices, {}, {}), CombineChecksums(slices, scales, {}));
  EXPECT_NE(CombineChecksums(slices, scales, {}), CombineChecksums(slices, scales, scales));
}

TEST(WeightSegment, OpensOnlyWhenReady) {
  const AlignedMemory memory = SmallSegment();
  const auto code_in_state = [&](uint32_t state) {
    HeaderOf(memory).state.store(state);
    return WeightSegment::FromMemory(memory.data(), memory.size()).status().code();
  };
  EXPECT_EQ(code_in_state(0), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code_in_state(1), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code_in_state(2), absl::StatusCode::kOk);
  EXPECT_EQ(code_in_state(3), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code_in_state(4), absl::StatusCode::kDataLoss);
}

TEST(WeightSegment, AnotherKindOfObjectIsNotTakenForAnUnfinishedSegment) {
  const AlignedMemory memory = SmallSegment();
  HeaderOf(memory).magic ^= 1;
  for (const uint32_t state : {0, 2}) {
    HeaderOf(memory).state.store(state);
    const absl::Status status = WeightSegment::FromMemory(memory.data(), memory.size()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not a weight segment"));
  }
  HeaderOf(memory).magic = 0;
  HeaderOf(memory).state.store(0);
  EXPECT_EQ(WeightSegment::FromMemory(memory.data(), memory.size()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(WeightSegment, OtherLayoutVersionIsNotReadAsDamage) {
  const AlignedMemory memory = SmallSegment();
  HeaderOf(memory).layout_version = kSegmentLayoutVersion + 1;
  const absl::Status status = WeightSegment::FromMemory(memory.data(), memory.size()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layout version 4"));
}

TEST(WeightSegment, MemoryMustBeAlignedAndLongEnough) {
  const AlignedMemory memory = SmallSegment();
  EXPECT_EQ(WeightSegment::FromMemory(memory.data() + 64, memory.size() - 64).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const int64_t bytes : {int64_t{0}, int64_t{100}, int64_t{4095}, int64_t{4096}, memory.size() - 1}) {
    EXPECT_EQ(WeightSegment::FromMemory(memory.data(), bytes).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
}

TEST(WeightSegment, AnyChangedByteOfHeaderOrDirectoryIsNoticed) {
  const AlignedMemory memory = SmallSegment();
  const int64_t directory_end = kDirectoryOffset + HeaderOf(memory).directory_count * int64_t{sizeof(TensorEntry)};
  for (int64_t i = 0; i < directory_end; ++i) {
    if (i == sizeof(SegmentHeader)) i = kDirectoryOffset;
    const bool is_progress = i >= 96 && i < 104;
    memory.data()[i] ^= 0x40;
    EXPECT_EQ(WeightSegment::FromMemory(memory.data(), memory.size()).ok(), is_progress) << i;
    memory.data()[i] ^= 0x40;
  }
}

}  // namespace
}  // namespace moestro::weights
