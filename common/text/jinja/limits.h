// Limits that keep a hostile or broken template from occupying a server's threads, stack or memory.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro::text::jinja {

// Nesting of expressions and statements in the source; real templates stay below 30.
inline constexpr int kMaxNesting = 100;
// Nesting of evaluation, macro calls included. A level takes about 1 KiB of stack, 4 KiB under AddressSanitizer.
inline constexpr int kMaxEvaluationDepth = 400;
// Nesting of lists and dicts in each other.
inline constexpr int kMaxValueDepth = 64;
// Iterations of all loops of one rendering: thousands of messages times some parts each.
inline constexpr int64_t kMaxLoopIterations = 1'000'000;
// Rendered text: more than any model's longest prompt.
inline constexpr int64_t kMaxOutputBytes = int64_t{32} << 20;
// All work of one rendering, in bytes made or read; one evaluation counts kEvaluationCost. Values consist of charged
// bytes only, so this bounds both time and memory: about a second, and about as many bytes. A template reads and copies
// each text up to ten times, so conversations of some 10 MB are within the limit.
inline constexpr int64_t kMaxWork = int64_t{256} << 20;
inline constexpr int64_t kEvaluationCost = 64;

// The work of one rendering. Not thread-safe.
class Budget {
 public:
  // RESOURCE_EXHAUSTED once all charges together exceed kMaxWork. Charge before doing the work.
  absl::Status Charge(int64_t work) {
    // `work` may be near 2^63 if a template multiplies, so compare before adding.
    if (work > kMaxWork - used_) {
      return absl::ResourceExhaustedError("the template does more work than one rendering may");
    }
    used_ += work;
    return absl::OkStatus();
  }

 private:
  int64_t used_ = 0;
};

}  // namespace moestro::text::jinja
