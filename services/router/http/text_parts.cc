#include "services/router/http/text_parts.h"

#include <optional>
#include <string_view>

#include "absl/strings/escaping.h"
#include "common/text/utf8.h"

namespace moestro::router {
namespace {

using text::JsonFields;

constexpr char kNoText[] = "is no text, and this model reads and writes text only";

// What names a text comes before it.
void AddLine(std::string& text, const std::string& line) {
  if (line.empty()) return;
  if (!text.empty()) text += '\n';
  text += line;
}

// Files are judged by what they hold: clients name the type of one as they like. A PDF may look like a text.
std::optional<std::string> TextOf(std::string_view base64) {
  std::string bytes;
  if (!absl::Base64Unescape({base64.data(), base64.size()}, &bytes)) return std::nullopt;
  const bool is_text =
      !text::FindInvalidUtf8(bytes) && bytes.find('\0') == std::string::npos && !bytes.starts_with("%PDF-");
  return is_text ? std::optional(std::move(bytes)) : std::nullopt;
}

// A text, or a list of blocks of the type text.
std::string ReadBlocksOfText(JsonFields& owner, const char* key) {
  if (owner.Has(key) && owner.object()[key].is_string()) return owner.StringOr(key, "");
  std::string joined;
  owner.ForEach(key, [&](JsonFields& block) {
    if (block.StringOr("type", "text") != "text") return block.Unsupported("type", kNoText);
    AddLine(joined, block.StringOr("text", ""));
  });
  return joined;
}

std::string ReadSource(JsonFields& block) {
  if (!block.Has("source")) block.Fail("source", "missing");
  JsonFields source = block.Sub("source");
  const std::string type = source.StringOr("type", "");
  if (type == "text") return source.StringOr("data", "");
  if (type == "content") return ReadBlocksOfText(source, "content");
  const std::optional<std::string> text = type == "base64" ? TextOf(source.StringOr("data", "")) : std::nullopt;
  if (!text && source.ok()) block.Unsupported("source", kNoText);
  return text.value_or("");
}

}  // namespace

std::string ReadFile(JsonFields& file) {
  std::string text = file.StringOr("filename", "");
  if (!file.Has("file_data")) file.Fail("file_data", "missing");
  const std::string data = file.StringOr("file_data", "");
  const size_t comma = data.starts_with("data:") ? data.find(',') : std::string::npos;
  const std::optional<std::string> held =
      TextOf(comma == std::string::npos ? std::string_view(data) : std::string_view(data).substr(comma + 1));
  if (!held && file.ok()) file.Unsupported("file_data", kNoText);
  AddLine(text, held.value_or(""));
  return text;
}

std::string ReadTextBlock(JsonFields& block) {
  const std::string type = block.StringOr("type", "");
  if (type == "tool_reference") return block.StringOr("tool_name", "");
  if (type != "document" && type != "search_result") return block.StringOr("text", "");
  std::string text = block.StringOr("title", "");
  AddLine(text, block.StringOr("context", ""));
  if (type == "document") {
    AddLine(text, ReadSource(block));
  } else {
    AddLine(text, block.StringOr("source", ""));
    AddLine(text, ReadBlocksOfText(block, "content"));
  }
  return text;
}

}  // namespace moestro::router
