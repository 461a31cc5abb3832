// The changes that a tokenizer makes to a text before it splits it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::text {

// Unicode's Normalization Form C. `text` must be valid UTF-8. O(n log n), also for hostile runs of combining marks.
// Code points assigned after the library's version of Unicode stay as they are.
std::string Nfc(std::string_view text);

// No text has more than this many times the bytes of its Nfc. The largest ratio is 3.5, for U+1FBE U+0308 U+0301: seven
// bytes, which become the two of U+0390.
inline constexpr size_t kMaxNfcShrink = 4;
// No Nfc has more than this many times the bytes of its text (UAX #15).
inline constexpr size_t kMaxNfcGrowth = 3;

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kPrepend,  // `content` goes before a text that is not empty
    kReplace,  // `content` goes into the place of every `pattern`
  };
  Kind kind;
  std::string pattern = {};  // of kReplace: literal, not empty
  std::string content = {};  // not empty
};

// Steps in the order of application. Immutable and thread-safe.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }

  // `text` must be valid UTF-8.
  std::string Apply(std::string_view text) const;

  // No text has more than this many times the bytes of its normalized form; and the reverse, but for what is prepended.
  size_t max_shrink() const;
  size_t max_growth() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace moestro::text
