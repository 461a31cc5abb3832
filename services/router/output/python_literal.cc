#include "services/router/output/python_literal.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "common/text/utf8.h"
#include "services/router/output/markers.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

using nlohmann::json;

// As deep as the JSON of requests may nest.
constexpr int kMaxDepth = 64;

struct Escape {
  char letter;
  char meaning;
};
constexpr Escape kEscapes[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'},  {'a', '\a'}, {'b', '\b'},
                               {'f', '\f'},  {'n', '\n'},  {'r', '\r'}, {'t', '\t'}, {'v', '\v'}};

struct Word {
  const char* python;
  const char* json;
};
constexpr Word kWords[] = {{"None", "null"}, {"True", "true"}, {"False", "false"}};

// Each reader returns false where the text is no literal.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::optional<std::string> Whole() {
    std::string json;
    SkipSpace();
    const bool has_members = Has('{') || Has('[') || Has('(');
    if (!has_members || !Value(0, &json)) return std::nullopt;
    SkipSpace();
    return rest_.empty() ? std::optional(std::move(json)) : std::nullopt;
  }

 private:
  bool Has(char c) const { return rest_.starts_with(c); }
  bool Take(char c) {
    if (!Has(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void SkipSpace() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size())); }

  bool Value(int depth, std::string* json) {
    if (depth == kMaxDepth || rest_.empty()) return false;
    if (Has('{')) return Dict(depth, json);
    if (Has('[') || Has('(')) return Sequence(depth, json);
    if (Has('\'') || Has('"')) {
      std::string text;
      if (!String(&text)) return false;
      *json = QuotedJson(text);
      return true;
    }
    return Scalar(json);
  }

  bool Dict(int depth, std::string* json) {
    Take('{');
    ObjectText object;
    for (SkipSpace(); !Take('}'); SkipSpace()) {
      std::string key;
      std::string value;
      if (!String(&key)) return false;
      SkipSpace();
      if (!Take(':')) return false;
      SkipSpace();
      if (!Value(depth + 1, &value)) return false;
      object.Set(key, std::move(value));
      SkipSpace();
      if (!Take(',') && !Has('}')) return false;
    }
    *json = object.Text();
    return true;
  }

  bool Sequence(int depth, std::string* json) {
    const char end = Has('[') ? ']' : ')';
    rest_.remove_prefix(1);
    *json = "[";
    bool has_comma = false;
    for (SkipSpace(); !Take(end); SkipSpace()) {
      std::string value;
      if (!Value(depth + 1, &value)) return false;
      json->append(json->size() > 1 ? ", " : "").append(value);
      SkipSpace();
      const bool comma = Take(',');
      has_comma = has_comma || comma;
      if (!comma && !Has(end)) return false;
    }
    *json += ']';
    return end == ']' || has_comma || *json == "[]";  // (1) is a number
  }

  bool String(std::string* text) {
    const char quote = Has('\'') ? '\'' : '"';
    if (!Take(quote)) return false;
    while (!Take(quote)) {
      if (rest_.empty() || Has('\n') || Has('\r')) return false;
      if (Take('\\')) {
        if (!Escaped(text)) return false;
      } else {
        *text += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    return true;
  }

  // What stands behind a backslash.
  bool Escaped(std::string* text) {
    if (rest_.empty()) return false;
    const char letter = rest_[0];
    for (const Escape& escape : kEscapes) {
      if (letter != escape.letter) continue;
      *text += escape.meaning;
      return Take(letter);
    }
    if (Take('\n')) return true;  // the string goes on in the next line
    if (letter == 'x' || letter == 'u' || letter == 'U') {
      Take(letter);
      return CodePoint(letter == 'x' ? 2 : letter == 'u' ? 4 : 8, text);
    }
    const bool is_octal = letter >= '0' && letter <= '7';
    if (is_octal || letter == 'N') return false;
    *text += '\\';  // Python knows no such escape, and keeps both characters
    return true;
  }

  bool CodePoint(size_t digits, std::string* text) {
    if (rest_.size() < digits) return false;
    uint32_t value = 0;
    for (const char c : rest_.substr(0, digits)) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
      const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
      value = value * 16 + static_cast<uint32_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return false;
    text::AppendUtf8(static_cast<char32_t>(value), text);
    rest_.remove_prefix(digits);
    return true;
  }

  // A word or a number. Python may leave out the digits on one side of the point.
  bool Scalar(std::string* json) {
    const auto is_part = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.'; };
    size_t size = Has('-') ? 1 : 0;
    while (size < rest_.size() && (is_part(rest_[size]) || IsSignOfExponent(size))) ++size;
    std::string written(rest_.substr(0, size));
    rest_.remove_prefix(size);
    for (const Word& word : kWords) {
      if (written != word.python) continue;
      *json = word.json;
      return true;
    }
    if (const size_t point = written.find('.'); point != std::string::npos) {
      const auto has_digit = [&](size_t at) {
        return at < written.size() && absl::ascii_isdigit(static_cast<unsigned char>(written[at]));
      };
      const bool before = point > 0 && has_digit(point - 1);
      const bool after = has_digit(point + 1);
      if (before && !after) written.insert(point + 1, "0");
      if (after && !before) written.insert(point, "0");
    }
    const bool is_number = !written.empty() && (written[0] == '-' || absl::ascii_isdigit(written[0]));
    if (!is_number || !json::accept(written)) return false;
    *json = std::move(written);
    return true;
  }
  bool IsSignOfExponent(size_t at) const {
    return at > 0 && (rest_[at] == '-' || rest_[at] == '+') && (rest_[at - 1] == 'e' || rest_[at - 1] == 'E');
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::string> JsonOfPythonLiteral(std::string_view text) { return Reader(text).Whole(); }

}  // namespace moestro::router
