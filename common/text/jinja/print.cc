#include "common/text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/utf8.h"

namespace moestro::text::jinja {
namespace {

// Cost of one value, with its brackets and separator.
constexpr int64_t kPrintCost = 16;
constexpr char kHexDigits[] = "0123456789abcdef";

// The escapes common to Python's repr and JSON; empty for other characters.
std::string_view CommonEscape(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      return "";
  }
}

void AppendHex(char c, std::string_view prefix, std::string* out) {
  const auto byte = static_cast<unsigned char>(c);
  out->append(prefix).push_back(kHexDigits[byte >> 4]);
  out->push_back(kHexDigits[byte & 15]);
}

// repr() of a string: single quotes, unless only those occur in it.
void AppendQuoted(const std::string& text, std::string* out) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  out->push_back(quote);
  for (const char c : text) {
    if (const std::string_view escape = CommonEscape(c); !escape.empty()) {
      out->append(escape);
    } else if (c == quote) {
      out->append("\\").push_back(c);
    } else if ((c >= 0 && c < 0x20) || c == 0x7F) {
      AppendHex(c, "\\x", out);
    } else {
      out->push_back(c);
    }
  }
  out->push_back(quote);
}

// \uXXXX, with a surrogate pair for a code point above U+FFFF.
void AppendUnicodeEscape(char32_t code_point, std::string* out) {
  if (code_point > 0xFFFF) {
    AppendUnicodeEscape(0xD800 + ((code_point - 0x10000) >> 10), out);
    code_point = 0xDC00 + (code_point & 0x3FF);
  }
  AppendHex(static_cast<char>(code_point >> 8), "\\u", out);
  AppendHex(static_cast<char>(code_point & 0xFF), "", out);
}

void AppendJsonString(const std::string& text, bool ascii, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (ascii && (c < 0 || c == 0x7F)) {
      const Utf8Step step = ReadUtf8(text, i);
      AppendUnicodeEscape(step.code_point, out);
      i += static_cast<size_t>(step.length) - 1;
      continue;
    }
    if (const std::string_view escape = CommonEscape(c); !escape.empty()) {
      out->append(escape);
    } else if (c == '"') {
      out->append("\\\"");
    } else if (c == '\b') {
      out->append("\\b");
    } else if (c == '\f') {
      out->append("\\f");
    } else if (c >= 0 && c < 0x20) {
      AppendHex(c, "\\u00", out);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

// Recursion is bounded by kMaxValueDepth.
class Writer {
 public:
  // `style` is null for Python's repr(); it must outlive this.
  Writer(const JsonStyle* style, Budget* budget) : style_(style), budget_(budget) {}

  absl::Status Write(const Value& value, int level) {
    const size_t before = out_.size();
    if (const std::string* text = value.AsString()) {
      MOE_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(text->size()) * 2));
      AppendString(*text);
    } else if (const List* list = value.AsList()) {
      const bool is_tuple = list->is_tuple && style_ == nullptr;
      const std::string_view close = !is_tuple ? "]" : list->items.size() == 1 ? ",)" : ")";
      return WriteMembers(is_tuple ? "(" : "[", close, list->items, level,
                          [&](const Value& item) { return Write(item, level + 1); });
    } else if (const Dict* dict = value.AsDict()) {
      std::vector<const std::pair<std::string, Value>*> members;
      members.reserve(dict->items.size());
      for (const auto& member : dict->items) members.push_back(&member);
      if (style_ != nullptr && style_->sort_keys) {
        std::ranges::sort(members, [](const auto* a, const auto* b) { return a->first < b->first; });
      }
      return WriteMembers("{", "}", members, level, [&](const auto* member) -> absl::Status {
        MOE_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(member->first.size()) * 2));
        const Value key = KeyOf(member->first);
        const std::string_view quote = style_ != nullptr && key.AsString() == nullptr ? "\"" : "";
        out_ += quote;
        MOE_RETURN_IF_ERROR(key.AsString() != nullptr ? (AppendString(*key.AsString()), absl::OkStatus())
                                                      : WriteScalar(key));
        out_ += quote;
        out_ += style_ == nullptr ? ": " : style_->key_separator;
        return Write(member->second, level + 1);
      });
    } else {
      MOE_RETURN_IF_ERROR(WriteScalar(value));
    }
    return budget_->Charge(static_cast<int64_t>(out_.size() - before) + kPrintCost);
  }

  std::string Take() { return std::move(out_); }

 private:
  void AppendString(const std::string& text) {
    style_ != nullptr ? AppendJsonString(text, style_->ascii, &out_) : AppendQuoted(text, &out_);
  }

  template <typename Members, typename WriteMember>
  absl::Status WriteMembers(std::string_view open, std::string_view close, const Members& members, int level,
                            WriteMember write_member) {
    out_ += open;
    bool first = true;
    for (const auto& member : members) {
      if (!first) out_ += style_ == nullptr ? ", " : style_->item_separator;
      first = false;
      MOE_RETURN_IF_ERROR(budget_->Charge(separator_cost_));
      MOE_RETURN_IF_ERROR(NewLine(level + 1));
      MOE_RETURN_IF_ERROR(write_member(member));
    }
    if (!members.empty()) MOE_RETURN_IF_ERROR(NewLine(level));
    out_ += close;
    return budget_->Charge(kPrintCost);
  }

  absl::Status NewLine(int level) {
    if (style_ == nullptr || !style_->lines) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(style_->indent.size()) * level + 1));
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_->indent;
    return absl::OkStatus();
  }

  absl::Status WriteScalar(const Value& value) {
    if (const bool* boolean = value.AsBool()) {
      out_ += style_ != nullptr ? (*boolean ? "true" : "false") : (*boolean ? "True" : "False");
    } else if (value.IsNone()) {
      out_ += style_ != nullptr ? "null" : "None";
    } else if (const int64_t* number = value.AsInt()) {
      out_ += std::to_string(*number);
    } else if (const std::string* digits = value.AsBigDigits()) {
      MOE_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(digits->size())));
      out_ += *digits;
    } else if (const double* real = value.AsFloat()) {
      out_ += FloatText(*real);
    } else if (style_ != nullptr) {
      return absl::InvalidArgumentError(Concat("tojson: ", value.TypeName(), " has no JSON form"));
    } else {
      out_ += value.IsUndefined() ? "Undefined" : Concat("<", value.TypeName(), ">");
    }
    return absl::OkStatus();
  }

  const JsonStyle* const style_;
  const int64_t separator_cost_ =
      style_ == nullptr ? 0 : static_cast<int64_t>(style_->item_separator.size() + style_->key_separator.size());
  Budget* budget_;
  std::string out_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Python writes an exponent below 1e-4 and from 1e16 on.
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(buffer, end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

absl::StatusOr<std::string> ToText(const Value& value, Budget* budget) {
  if (value.IsUndefined()) return std::string();
  if (const std::string* text = value.AsString()) {
    MOE_RETURN_IF_ERROR(budget->Charge(static_cast<int64_t>(text->size())));
    return *text;
  }
  Writer writer(/*style=*/nullptr, budget);
  MOE_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style, Budget* budget) {
  Writer writer(&style, budget);
  MOE_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace moestro::text::jinja
