#include "services/router/http/multipart.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

constexpr size_t kMaxParts = 16;
constexpr size_t kMaxBoundary = 70;  // RFC 2046

absl::Status Wrong(const char* what) { return absl::InvalidArgumentError(absl::StrCat("multipart/form-data: ", what)); }

// The value of a parameter: `boundary=x`, `name="a \"b\""`. nullopt: there is none. `text` begins with a value and has
// parameters behind semicolons.
std::optional<std::string> Parameter(std::string_view text, std::string_view name) {
  size_t at = text.find(';');
  while (at != std::string_view::npos) {
    at = text.find_first_not_of("; \t", at);
    if (at == std::string_view::npos) break;
    const size_t equals = text.find_first_of("=;", at);
    if (equals == std::string_view::npos || text[equals] == ';') {
      at = equals;
      continue;
    }
    const std::string key = absl::AsciiStrToLower(std::string(text.substr(at, equals - at)));
    std::string value;
    at = equals + 1;
    if (at < text.size() && text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        value += text[at];
      }
      at = text.find(';', at);
    } else {
      const size_t end = text.find(';', at);
      value = std::string(text.substr(at, end == std::string_view::npos ? end : end - at));
      absl::StripTrailingAsciiWhitespace(&value);
      at = end;
    }
    if (key == name) return value;
  }
  return std::nullopt;
}

// The value of a header among the lines of `head`.
std::string_view Header(std::string_view head, const std::string& name) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && absl::EqualsIgnoreCase(std::string(line.substr(0, colon)), name)) {
      return line.substr(colon + 1);
    }
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return {};
}

}  // namespace

absl::StatusOr<std::vector<FormPart>> ParseForm(std::string_view content_type, std::string_view body) {
  const std::string type(content_type.substr(0, content_type.find(';')));
  if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(type), "multipart/form-data")) {
    return Wrong("is the type that a body must have here");
  }
  const std::optional<std::string> boundary = Parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) return Wrong("has no boundary");
  const std::string first = "--" + *boundary;
  const std::string next = "\r\n" + first;
  if (!body.starts_with(first)) return Wrong("the body does not begin with the boundary");
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) return Wrong("a boundary ends neither its line nor the body");
    body.remove_prefix(2);
    const size_t head_end = body.find("\r\n\r\n");
    if (head_end == std::string_view::npos) return Wrong("a part has no end of its header");
    const std::string_view head = body.substr(0, head_end);
    body.remove_prefix(head_end + 4);
    const size_t end = body.find(next);
    if (end == std::string_view::npos) return Wrong("a part has no boundary behind it");
    if (parts.size() == kMaxParts) return Wrong("has more than 16 parts");
    const std::string_view disposition = Header(head, "content-disposition");
    const std::optional<std::string> name = Parameter(disposition, "name");
    if (!name) return Wrong("a part has no name");
    parts.push_back(
        {.name = *name, .filename = Parameter(disposition, "filename").value_or(""), .contents = body.substr(0, end)});
    body.remove_prefix(end + next.size());
  }
  return parts;
}

}  // namespace moestro::router
