// A segment of small tensors with known contents, one of each kind that a segment can hold.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/weights/segment_writer.h"
#include "tests/support/aligned_memory.h"

namespace moestro::weights {

inline constexpr const char kSmallFingerprint[] = "00112233445566778899aabbccddeeff";

// Sorted by name: "bf16_packed" [3, 6], "bf16_rows" [70, 2], "f32_rows" [1, 5], "fp8_packed" [130, 129] with scales,
// "i8_packed" [3, 70] with scales, "q4k_packed" [5, 256], "q8_rows" [66, 64].
std::vector<TensorPlan> SmallPlan();
ModelSpec SmallSpec();

// Byte i of tensor t is (i * 7 + t) % 119: never a NaN of E4M3. Scales are 1, 2, 3, ... Sets all checksums.
void FillSmallSegment(SegmentWriter& writer);

// The finished segment's memory.
AlignedMemory SmallSegment();

}  // namespace moestro::weights
