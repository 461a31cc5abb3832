#include "common/checkpoint/gguf/gguf_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace moestro::checkpoint {
namespace {

double Parse(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string Shortest(float value) {
  char text[64];  // the longest has 16 characters in this form
  return {text, std::to_chars(std::begin(text), std::end(text), value, std::chars_format::scientific).ptr};
}

}  // namespace

double Decimal(float value) { return Parse(Shortest(value)); }

double TenTimesDecimal(float value) {
  const std::string text = Shortest(value);
  const size_t exponent = text.find('e') + 1;
  return Parse(absl::StrCat(text.substr(0, exponent), std::stoi(text.substr(exponent)) + 1));
}

int64_t GgufFields::Int(absl::string_view key, int64_t least, int64_t most) {
  const GgufValue* const value = metadata_.Find(Key(key));
  if (const auto* const list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value)) {
    if (list->empty() || std::ranges::any_of(*list, [&](int64_t one) { return one != list->front(); })) {
      NotSupported(key, "layers that differ are not supported");
      return least;
    }
    if (list->front() >= least && list->front() <= most) return list->front();
    Wrong(key, absl::StrCat(list->front(), " is not from ", least, " to ", most));
    return least;
  }
  const absl::StatusOr<int64_t> number = metadata_.Integer(Key(key), least, most);
  Record(number.status());
  return number.value_or(least);
}

double GgufFields::Number(absl::string_view key) {
  const GgufValue* const value = metadata_.Find(Key(key));
  double number = 0;
  if (value == nullptr) {
    Wrong(key, "missing");
  } else if (const auto* const single = std::get_if<float>(value)) {
    if (!std::isfinite(*single)) Wrong(key, "is not finite");
    number = Decimal(*single);
  } else if (const auto* const twice = std::get_if<double>(value)) {
    if (!std::isfinite(*twice)) Wrong(key, "is not finite");
    number = *twice;
  } else if (const auto* const whole = std::get_if<int64_t>(value)) {
    number = static_cast<double>(*whole);
  } else {
    Wrong(key, absl::StrCat("is ", GgufTypeName(*value), ", not a number"));
  }
  return std::isfinite(number) ? number : 0;
}

float GgufFields::FloatOr(absl::string_view key, float fallback) {
  return Has(key) ? static_cast<float>(Number(key)) : fallback;
}

bool GgufFields::FlagOr(absl::string_view key, bool fallback) {
  if (!Has(key)) return fallback;
  const absl::StatusOr<bool> flag = metadata_.Flag(Key(key));
  Record(flag.status());
  return flag.value_or(fallback);
}

std::string GgufFields::TextOr(absl::string_view key, const std::string& fallback) {
  if (!Has(key)) return fallback;
  const absl::StatusOr<const std::string*> text = metadata_.Text(Key(key));
  Record(text.status());
  return text.ok() ? **text : fallback;
}

}  // namespace moestro::checkpoint
