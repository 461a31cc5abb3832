// Segments with right checksums but false numbers: opening must reject them all and read nothing outside.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "common/weights/checksum.h"
#include "common/weights/segment.h"
#include "tests/common/weights/small_segment.h"

namespace moestro::weights {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

struct Attack {
  const char* name;
  std::function<void(SegmentHeader&, TensorEntry*)> mutate;
};

void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

std::vector<Attack> Attacks() {
  return {
      {"magic", [](auto& h, auto*) { h.magic ^= 1; }},
      {"total_too_large", [](auto& h, auto*) { h.total_bytes += 4096; }},
      {"total_max", [](auto& h, auto*) { h.total_bytes = kMax; }},
      {"total_negative", [](auto& h, auto*) { h.total_bytes = -4096; }},
      {"total_too_small", [](auto& h, auto*) { h.total_bytes = 8192; }},
      {"directory_offset_zero", [](auto& h, auto*) { h.directory_offset = 0; }},
      {"directory_offset_max", [](auto& h, auto*) { h.directory_offset = kMax - 4095; }},
      {"directory_offset_unaligned", [](auto& h, auto*) { h.directory_offset += 1; }},
      {"count_zero", [](auto& h, auto*) { h.directory_count = 0; }},
      {"count_negative", [](auto& h, auto*) { h.directory_count = -1; }},
      {"count_max", [](auto& h, auto*) { h.directory_count = kMax; }},
      {"count_overflows_product", [](auto& h, auto*) { h.directory_count = kMax / 200 + 2; }},
      {"count_up_to_the_end", [](auto& h, auto*) { h.directory_count = (h.total_bytes - 4096) / 200; }},
      {"data_offset_inside_directory", [](auto& h, auto*) { h.data_offset = 4096; }},
      {"data_offset_min", [](auto& h, auto*) { h.data_offset = kMin; }},
      {"data_offset_past_end", [](auto& h, auto*) { h.data_offset = h.total_bytes + 4096; }},
      {"data_bytes", [](auto& h, auto*) { h.data_bytes += 1; }},
      {"fingerprint_without_end", [](auto& h, auto*) { std::memset(h.fingerprint, 'a', 40); }},
      {"fingerprint_not_hex", [](auto& h, auto*) { h.fingerprint[0] = 'g'; }},
      {"family_without_end", [](auto& h, auto*) { std::memset(h.spec.family, 'x', 32); }},
      {"name_without_end", [](auto&, auto* e) { std::memset(e[3].name, 'z', kMaxTensorName); }},
      {"name_empty", [](auto&, auto* e) { e[0].name[0] = 0; }},
      {"name_twice", [](auto&, auto* e) { std::memcpy(e[1].name, e[0].name, kMaxTensorName); }},
      {"names_unsorted", [](auto&, auto* e) { e[0].name[0] = 'z'; }},
      {"dtype_unknown", [](auto&, auto* e) { e[0].dtype = static_cast<DType>(static_cast<uint32_t>(kLastDType) + 1); }},
      {"dtype_of_other_size", [](auto&, auto* e) { e[1].dtype = DType::kF32; }},
      {"layout_unknown", [](auto&, auto* e) { e[0].layout = static_cast<TensorLayout>(2); }},
      {"f32_packed", [](auto&, auto* e) { e[2].layout = TensorLayout::kPacked; }},
      {"fp8_row_major", [](auto&, auto* e) { e[3].layout = TensorLayout::kRowMajor; }},
      {"i8_row_major", [](auto&, auto* e) { e[4].layout = TensorLayout::kRowMajor; }},
      {"i8_without_scales", [](auto&, auto* e) { e[4].scale_offset = e[4].scale_bytes = 0; }},
      {"i8_scales_as_of_fp8", [](auto&, auto* e) { e[4].scale_bytes = 4; }},
      {"i8_without_compensation", [](auto&, auto* e) { e[4].exception_offset = e[4].exception_bytes = 0; }},
      {"i8_compensation_of_fewer_rows", [](auto&, auto* e) { e[4].exception_bytes = 12; }},
      {"blocks_not_whole_packed", [](auto&, auto* e) { e[5].cols -= 1; }},
      {"blocks_of_another_length", [](auto&, auto* e) { e[5].cols = 128; }},
      {"blocks_not_whole_row_major", [](auto&, auto* e) { e[6].cols = 63; }},
      {"blocks_of_another_format", [](auto&, auto* e) { e[5].dtype = DType::kQ5K; }},
      {"blocks_in_another_layout", [](auto&, auto* e) { e[6].layout = TensorLayout::kPacked; }},
      {"blocks_in_more_rows", [](auto&, auto* e) { e[5].rows = 65; }},
      {"blocks_with_scales",
       [](auto& h, auto* e) {
         e[5].scale_offset = e[5].data_offset + 9216;
         e[5].scale_bytes = 8;
         h.data_bytes += 8;
       }},
      {"fp8_without_scales", [](auto&, auto* e) { e[3].scale_offset = e[3].scale_bytes = 0; }},
      {"bf16_with_scales", [](auto&, auto* e) { e[0].scale_offset = e[0].data_offset + 4032; }},
      {"rows_zero", [](auto&, auto* e) { e[0].rows = 0; }},
      {"rows_negative", [](auto&, auto* e) { e[0].rows = -64; }},
      {"rows_and_cols_overflow", [](auto&, auto* e) { e[0].rows = e[0].cols = int64_t{1} << 32; }},
      {"cols_max", [](auto&, auto* e) { e[0].cols = kMax; }},
      {"rows_beyond_data", [](auto&, auto* e) { e[1].rows += 1; }},
      {"tensor_data_offset_negative", [](auto&, auto* e) { e[0].data_offset = -4096; }},
      {"tensor_data_offset_max", [](auto&, auto* e) { e[0].data_offset = kMax - 4095; }},
      {"tensor_data_offset_unaligned", [](auto&, auto* e) { e[0].data_offset += 64; }},
      {"tensor_data_in_directory", [](auto&, auto* e) { e[0].data_offset = 4096; }},
      {"tensor_data_past_end", [](auto& h, auto* e) { e[3].data_offset = h.total_bytes - 4096; }},
      {"tensors_overlap", [](auto&, auto* e) { e[1].data_offset = e[0].data_offset; }},
      {"tensor_bytes_negative", [](auto&, auto* e) { e[0].data_bytes = -1; }},
      {"tensor_bytes_max", [](auto&, auto* e) { e[0].data_bytes = kMax; }},
      {"scale_offset_max", [](auto&, auto* e) { e[3].scale_offset = kMax - 63; }},
      {"scale_offset_negative", [](auto&, auto* e) { e[3].scale_offset = -64; }},
      {"scale_offset_unaligned", [](auto&, auto* e) { e[3].scale_offset += 4; }},
      {"scales_in_data", [](auto&, auto* e) { e[3].scale_offset = e[3].data_offset; }},
      {"scales_past_end", [](auto& h, auto* e) { e[3].scale_offset = h.total_bytes; }},
      {"scale_bytes", [](auto&, auto* e) { e[3].scale_bytes += 4; }},
      {"fp8_without_exceptions", [](auto&, auto* e) { e[3].exception_offset = e[3].exception_bytes = 0; }},
      {"bf16_with_exceptions", [](auto&, auto* e) { e[0].exception_offset = e[0].data_offset + 4032; }},
      {"exception_offset_max", [](auto&, auto* e) { e[3].exception_offset = kMax - 63; }},
      {"exception_offset_negative", [](auto&, auto* e) { e[3].exception_offset = -64; }},
      {"exception_offset_unaligned", [](auto&, auto* e) { e[3].exception_offset += 4; }},
      {"exceptions_in_scales", [](auto&, auto* e) { e[3].exception_offset = e[3].scale_offset; }},
      {"exceptions_past_end", [](auto& h, auto* e) { e[3].exception_offset = h.total_bytes; }},
      {"exception_bytes", [](auto&, auto* e) { e[3].exception_bytes += 4; }},
  };
}

class SegmentAttack : public ::testing::TestWithParam<Attack> {};

TEST_P(SegmentAttack, IsRefused) {
  const AlignedMemory memory = SmallSegment();
  auto& header = *reinterpret_cast<SegmentHeader*>(memory.data());
  auto* entries = reinterpret_cast<TensorEntry*>(memory.data() + kDirectoryOffset);
  GetParam().mutate(header, entries);
  header.directory_checksum = DirectoryChecksum({entries, 7});
  header.header_checksum = HeaderChecksum(header);
  const auto segment = WeightSegment::FromMemory(memory.data(), memory.size());
  EXPECT_EQ(segment.status().code(), absl::StatusCode::kDataLoss) << segment.status();
}

INSTANTIATE_TEST_SUITE_P(All, SegmentAttack, ::testing::ValuesIn(Attacks()),
                         [](const auto& attack) { return attack.param.name; });

// The attacks above are rejected for what they change: an unchanged segment with right checksums opens.
TEST(SegmentAttackControl, UnchangedSegmentOpens) {
  const AlignedMemory memory = SmallSegment();
  auto& header = *reinterpret_cast<SegmentHeader*>(memory.data());
  header.header_checksum = HeaderChecksum(header);
  EXPECT_TRUE(WeightSegment::FromMemory(memory.data(), memory.size()).ok());
}

}  // namespace
}  // namespace moestro::weights
