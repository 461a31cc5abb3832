#include "common/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

// The longest canonical decomposition of one code point has four.
constexpr utf8proc_ssize_t kMaxDecomposition = 8;

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

int CombiningClass(utf8proc_int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

// Orders each run of combining marks by class. The library's own order is quadratic in the length of a run.
void OrderMarks(std::vector<utf8proc_int32_t>* code_points) {
  const auto is_mark = [](utf8proc_int32_t c) { return CombiningClass(c) != 0; };
  for (auto begin = code_points->begin(); begin != code_points->end();) {
    begin = std::find_if(begin, code_points->end(), is_mark);
    const auto end = std::find_if_not(begin, code_points->end(), is_mark);
    std::stable_sort(begin, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

void AppendNfc(std::string_view text, std::string* out) {
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size() / 2 + kMaxDecomposition);
  int boundary = 0;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = ReadUtf8(text, offset);
    utf8proc_int32_t parts[kMaxDecomposition];
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.code_point), parts,
                                                           kMaxDecomposition, UTF8PROC_DECOMPOSE, &boundary);
    MOE_CHECK(count >= 0 && count <= kMaxDecomposition);
    code_points.insert(code_points.end(), parts, parts + count);
    offset += step.length;
  }
  OrderMarks(&code_points);
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kCompose);
  MOE_CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(code_points[i]), out);
}

}  // namespace

std::string Nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    size_t end =
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(offset), text.end(), IsAscii) - text.begin();
    // ASCII never composes with what precedes it, but its last character may with what follows.
    const bool last_composes = end > offset && end < text.size();
    out.append(text, offset, end - offset - (last_composes ? 1 : 0));
    offset = end - (last_composes ? 1 : 0);
    end = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), IsAscii) - text.begin();
    AppendNfc(text.substr(offset, end - offset), &out);
    offset = end;
  }
  return out;
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string out(text);
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::kNfc:
        out = Nfc(out);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.content);
        break;
      case NormalizerStep::Kind::kReplace:
        out = absl::StrReplaceAll(out, {{step.pattern, step.content}});
        break;
    }
  }
  return out;
}

size_t Normalizer::max_shrink() const {
  size_t factor = 1;
  for (const NormalizerStep& step : steps_) {
    if (step.kind == NormalizerStep::Kind::kNfc) factor *= kMaxNfcShrink;
    if (step.kind == NormalizerStep::Kind::kReplace) factor *= CeilDiv(step.pattern.size(), step.content.size());
  }
  return factor;
}

size_t Normalizer::max_growth() const {
  size_t factor = 1;
  for (const NormalizerStep& step : steps_) {
    if (step.kind == NormalizerStep::Kind::kNfc) factor *= kMaxNfcGrowth;
    if (step.kind == NormalizerStep::Kind::kReplace) factor *= CeilDiv(step.content.size(), step.pattern.size());
  }
  return factor;
}

}  // namespace moestro::text
