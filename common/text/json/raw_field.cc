#include "common/text/json/raw_field.h"

#include <nlohmann/json.hpp>

namespace moestro::text {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

size_t SkipSpace(std::string_view text, size_t at) {
  const size_t next = text.find_first_not_of(kSpace, at);
  return next == std::string_view::npos ? text.size() : next;
}

// The end of the string that begins at `at`.
size_t StringEnd(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1 < text.size() ? at + 1 : text.size();
}

// The end of the value that begins at `at`.
size_t ValueEnd(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = StringEnd(text, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at + 1;
    // The end of a number or word.
    if (depth < 0 || (depth == 0 && (c == ',' || kSpace.find(c) != std::string_view::npos))) return at;
    ++at;
  }
  return at;
}

// Whether a key, as it was written with its quotes, is this one. Escapes may write any character.
bool IsKey(std::string_view written, std::string_view key) {
  if (written.find('\\') == std::string_view::npos) return written.substr(1, written.size() - 2) == key;
  const nlohmann::json name = nlohmann::json::parse(written, nullptr, /*allow_exceptions=*/false);
  return name.is_string() && name.get_ref<const std::string&>() == key;
}

}  // namespace

std::string_view RawField(std::string_view text, std::string_view key) {
  size_t at = SkipSpace(text, 0) + 1;  // behind the brace
  while ((at = SkipSpace(text, at)) < text.size() && text[at] == '"') {
    const size_t name_end = StringEnd(text, at);
    const std::string_view name = text.substr(at, name_end - at);
    const size_t value = SkipSpace(text, SkipSpace(text, name_end) + 1);  // behind the colon
    const size_t end = ValueEnd(text, value);
    if (IsKey(name, key)) return text.substr(value, end - value);
    at = SkipSpace(text, end) + 1;  // behind the comma
  }
  return {};
}

std::string_view RawValue(std::string_view text) { return text.substr(0, ValueEnd(text, 0)); }

std::vector<std::string_view> RawElements(std::string_view text) {
  std::vector<std::string_view> elements;
  size_t at = SkipSpace(text, 0);
  if (at == text.size() || text[at] != '[') return elements;
  at = SkipSpace(text, at + 1);
  while (at < text.size() && text[at] != ']') {
    const size_t end = ValueEnd(text, at);
    elements.push_back(text.substr(at, end - at));
    at = SkipSpace(text, end);
    if (at < text.size() && text[at] == ',') at = SkipSpace(text, at + 1);
  }
  return elements;
}

}  // namespace moestro::text
