#include "tests/common/weights/small_segment.h"

#include "common/base/check.h"
#include "common/weights/checksum.h"
#include "common/weights/tensor_size.h"

namespace moestro::weights {

std::vector<TensorPlan> SmallPlan() {
  using enum TensorLayout;
  return {{"bf16_packed", DType::kBF16, kPacked, 3, 6, false}, {"bf16_rows", DType::kBF16, kRowMajor, 70, 2, false},
          {"f32_rows", DType::kF32, kRowMajor, 1, 5, false},   {"fp8_packed", DType::kF8E4M3, kPacked, 130, 129, true},
          {"i8_packed", DType::kI8, kPacked, 3, 70, true},     {"q4k_packed", DType::kQ4K, kPacked, 5, 256, false},
          {"q8_rows", DType::kQ8_0, kRowMajor, 66, 64, false}};
}

ModelSpec SmallSpec() {
  ModelSpec spec;
  std::string("deepseek_v3").copy(spec.family, sizeof(spec.family) - 1);
  spec.hidden_size = 6;
  spec.num_layers = 1;
  spec.rope_theta = 50000;
  return spec;
}

void FillSmallSegment(SegmentWriter& writer) {
  for (size_t t = 0; t < writer.directory().size(); ++t) {
    const TensorEntry& entry = writer.directory()[t];
    for (int64_t i = 0; i < entry.data_bytes; ++i) {
      writer.data(t)[i] = static_cast<uint8_t>((i * 7 + static_cast<int64_t>(t)) % 119);
    }
    for (int64_t i = 0; i < entry.scale_bytes / 4; ++i) writer.scales(t)[i] = static_cast<float>(i + 1);
    for (int64_t i = 0; i < entry.exception_bytes / 4; ++i) writer.exceptions(t)[i] = ~0u;
    writer.SetChecksum(t, TensorChecksum(entry, reinterpret_cast<const uint8_t*>(&writer.header())));
    writer.AddProgress(StoredBytes(entry));
  }
}

AlignedMemory SmallSegment() {
  const auto plan = SmallPlan();
  AlignedMemory memory(SegmentWriter::RequiredBytes(plan));
  auto writer = SegmentWriter::CreateInMemory(memory.data(), memory.size(), 3, kSmallFingerprint, SmallSpec(), plan);
  MOE_CHECK(writer.ok());
  FillSmallSegment(**writer);
  MOE_CHECK((*writer)->Finish().ok());
  return memory;
}

}  // namespace moestro::weights
