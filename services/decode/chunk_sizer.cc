#include "services/decode/chunk_sizer.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace moestro::decode {
namespace {

// A class without a new measurement is forgotten after this many steps with prompts. It may have been measured while
// the machine was busy, or with a shorter context. Trying it anew costs at most one slow step in this many.
constexpr int64_t kForgetAfter = 64;

size_t ClassOf(int64_t rows) { return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows)) - 1); }

}  // namespace

int64_t ChunkSizer::Choose(int64_t decode_rows) const {
  if (decode_rows == 0 || std::isinf(options_.bound_seconds)) return options_.max_rows;
  const int64_t least = std::min(kMinRows, options_.max_rows);
  const double base = BaseSeconds(decode_rows);
  const double room = kTargetShare * options_.Bound(base) - base;
  if (room <= 0) return least;
  double seconds_per_row = 1e-9;  // of the larger classes: rows of a smaller class are no cheaper
  for (size_t k = ClassOf(options_.max_rows) + 1; k-- > ClassOf(least);) {
    const SizeClass* known = Known(k);
    if (known == nullptr && k > 0) known = Known(k - 1);
    if (known == nullptr) continue;
    seconds_per_row = std::max(seconds_per_row, known->seconds_per_row.High());
    const int64_t largest = std::min((int64_t{2} << k) - 1, options_.max_rows);
    const double fitting = room / seconds_per_row;
    const int64_t rows = fitting >= static_cast<double>(largest) ? largest : static_cast<int64_t>(fitting);
    if (rows >= int64_t{1} << k) return std::max(rows, least);
  }
  return least;
}

void ChunkSizer::Note(int64_t decode_rows, int64_t prompt_rows, double seconds) {
  // Without decoding sequences nobody waited, and the cost of such a step says little about a mixed one.
  if (decode_rows == 0) return;
  if (prompt_rows == 0) {
    if (base_seconds_.size() <= static_cast<size_t>(decode_rows)) {
      base_seconds_.resize(static_cast<size_t>(decode_rows) + 1);
    }
    base_seconds_[static_cast<size_t>(decode_rows)].Add(seconds);
    return;
  }
  SizeClass& size_class = classes_[ClassOf(prompt_rows)];
  if (Known(ClassOf(prompt_rows)) == nullptr) size_class = {};
  size_class.seconds_per_row.Add(std::max(0.0, seconds - BaseSeconds(decode_rows)) / static_cast<double>(prompt_rows));
  size_class.noted_at = ++mixed_steps_;
}

// A lower bound where nothing was measured. The missing part is then counted as cost of the prompt rows.
double ChunkSizer::BaseSeconds(int64_t decode_rows) const {
  const auto wanted = static_cast<size_t>(decode_rows);
  for (size_t i = std::min(wanted + 1, base_seconds_.size()); i-- > 0;) {
    if (!base_seconds_[i].empty()) return base_seconds_[i].Median();
  }
  for (size_t i = wanted + 1; i < base_seconds_.size(); ++i) {
    if (base_seconds_[i].empty()) continue;
    return base_seconds_[i].Median() * static_cast<double>(wanted) / static_cast<double>(i);
  }
  return 0;
}

const ChunkSizer::SizeClass* ChunkSizer::Known(size_t size_class) const {
  const SizeClass& found = classes_[size_class];
  if (found.seconds_per_row.empty() || mixed_steps_ - found.noted_at >= kForgetAfter) return nullptr;
  return &found;
}

}  // namespace moestro::decode
