// Bounds of a model's dimensions. Several times the largest published models. Together they keep every product that the
// engine forms (parameters and bytes of the whole model) below 2^58, and the list of expected tensors below a million
// entries.
#pragma once

#include <cstdint>

namespace moestro {

inline constexpr int64_t kMaxHidden = int64_t{1} << 17;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxRank = int64_t{1} << 17;
inline constexpr int64_t kMaxIntermediate = int64_t{1} << 18;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxSharedExperts = 64;
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxPositions = int64_t{1} << 27;
inline constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 18;

}  // namespace moestro
