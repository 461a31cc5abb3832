#include "common/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/oniguruma.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

// Enough for a match that backtracks through 256 KiB. Small enough that hostile text can occupy neither a thread nor
// the memory.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 128 * 1024;

// Matching state for one pattern, reused for many texts.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        data_(pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free),
        context_(pcre2_match_context_create(nullptr), &pcre2_match_context_free) {
    if (!Ready()) return;
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  bool Ready() const { return data_ != nullptr && context_ != nullptr; }

  // Returns PCRE2's result; if positive, the match is [begin(), end()).
  int Match(std::string_view text, size_t start) {
    const int result = Match(text, start, 0);
    // The interpreter keeps its state on the heap; the JIT has only a small stack.
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? Match(text, start, PCRE2_NO_JIT) : result;
  }
  size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

 private:
  int Match(std::string_view text, size_t start, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       PCRE2_NO_UTF_CHECK | options, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context_;
};

absl::Status SplitOne(Matcher& matcher, std::string_view text, SplitKeeps keeps, size_t max_pieces,
                      std::vector<std::string_view>* pieces) {
  size_t done = 0;  // end of the pieces so far
  const auto add_up_to = [&](size_t end, bool kept) {
    if (end > done && kept) pieces->push_back(text.substr(done, end - done));
    done = end;
  };
  const auto add_gap = [&](size_t end) { add_up_to(end, keeps != SplitKeeps::kMatches); };
  const auto add_match = [&](size_t end) { add_up_to(end, keeps != SplitKeeps::kGaps); };
  for (size_t start = 0; start < text.size();) {
    const int result = matcher.Match(text, start);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(
          Concat("splitting text at byte ", start, " of ", text.size(), ": ", Pcre2Message(result)));
    }
    add_gap(matcher.begin());
    add_match(matcher.end());
    if (pieces->size() > max_pieces) break;
    start = matcher.end();
    if (matcher.begin() == matcher.end() && start < text.size()) start += Utf8Length(text[start]);
  }
  if (pieces->size() <= max_pieces) add_gap(text.size());
  if (pieces->size() <= max_pieces) return absl::OkStatus();
  return absl::OutOfRangeError(Concat("the text has more than ", max_pieces, " pieces"));
}

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  MOE_ASSIGN_OR_RETURN(const std::string translated, OnigurumaToPcre2(pattern));
  MOE_ASSIGN_OR_RETURN(Pcre2Code code, CompilePcre2(translated));
  return Regex(std::move(code));
}

absl::StatusOr<std::vector<std::string_view>> Regex::Split(std::span<const std::string_view> texts, SplitKeeps keeps,
                                                           size_t max_pieces) const {
  Matcher matcher(code_.get());
  if (!matcher.Ready()) return absl::ResourceExhaustedError("out of memory for splitting text");
  std::vector<std::string_view> pieces;
  pieces.reserve(texts.size());
  for (const std::string_view text : texts) MOE_RETURN_IF_ERROR(SplitOne(matcher, text, keeps, max_pieces, &pieces));
  return pieces;
}

}  // namespace moestro::text
