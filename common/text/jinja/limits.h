// Bounds that keep a hostile or broken template from holding a thread, the stack or the memory of a server.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace moestro::jinja {

// Nesting of expressions and statements in the source: real templates stay under 30.
inline constexpr int kMaxNesting = 100;
// Nesting of evaluation, macro calls included. A level takes about 1 KiB of stack, 4 KiB under AddressSanitizer.
inline constexpr int kMaxEvaluationDepth = 400;
// Nesting of lists and dicts in each other.
inline constexpr int kMaxValueDepth = 64;
// Passes through all loops of one rendering: thousands of messages times some parts each.
inline constexpr int64_t kMaxLoopIterations = 1'000'000;
// Rendered text: more than the longest prompt a model takes.
inline constexpr int64_t kMaxOutputBytes = int64_t{32} << 20;
// All work of one rendering, in bytes made or read; one evaluation counts kEvaluationCost. Values are made of charged
// bytes only, so this bounds time and memory alike: about a second, and about as many bytes. A template reads and
// copies each text up to ten times, so conversations of some 10 MB pass.
inline constexpr int64_t kMaxWork = int64_t{256} << 20;
inline constexpr int64_t kEvaluationCost = 64;

// What one rendering has used. Not thread-safe.
class Budget {
 public:
  // RESOURCE_EXHAUSTED once the sum of all charges is over kMaxWork. Charged before the work is done.
  absl::Status Charge(int64_t work) {
    // `work` may be near 2^63 where a template multiplies; compare before adding.
    if (work > kMaxWork - used_) {
      return absl::ResourceExhaustedError("the template does more work than one rendering may");
    }
    used_ += work;
    return absl::OkStatus();
  }

 private:
  int64_t used_ = 0;
};

}  // namespace moestro::jinja
