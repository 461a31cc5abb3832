#include "services/router/http/call_arguments.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

// The text of an object on one line; nullopt: it is no JSON object. The parser refuses numbers that it cannot hold, and
// one of two digits is as valid as one of many: it is given those.
std::optional<std::string> ObjectOnOneLine(std::string_view text) {
  std::string line;
  std::string small;
  bool in_string = false;
  bool escaped = false;
  size_t digits = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    digits = !in_string && absl::ascii_isdigit(byte) ? digits + 1 : 0;
    if (digits <= 2) small += c;
    if (in_string || !absl::ascii_isspace(byte)) line += c;
    in_string = in_string ? escaped || c != '"' : c == '"';
    escaped = in_string && !escaped && c == '\\';
  }
  return line.starts_with('{') && IsJson(small) ? std::optional(std::move(line)) : std::nullopt;
}

void Append(const OrderedJson& json, std::string* out) {
  if (json.is_binary()) {
    out->append(json.get_binary().begin(), json.get_binary().end());
    return;
  }
  if (!json.is_structured()) {
    *out += Dump(json);
    return;
  }
  const bool is_object = json.is_object();
  *out += is_object ? '{' : '[';
  const char* comma = "";
  for (const auto& [key, value] : json.items()) {
    *out += std::exchange(comma, ",");
    if (is_object) out->append(Dump(key)).append(":");
    Append(value, out);
  }
  *out += is_object ? '}' : ']';
}

}  // namespace

// Bytes are what no other part of an answer is.
OrderedJson ArgumentsObject(const std::string& arguments) {
  const std::optional<std::string> object = ObjectOnOneLine(arguments);
  if (!object) return {{"partial_json", arguments}};
  return OrderedJson::binary({object->begin(), object->end()});
}

std::string DumpWithArguments(const OrderedJson& json) {
  std::string text;
  Append(json, &text);
  return text;
}

}  // namespace moestro::router
