#include "common/text/jinja/print.h"

#include <charconv>
#include <cmath>

#include "common/base/status.h"
#include "common/text/concat.h"

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

void AppendJsonString(const std::string& text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
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
  Writer(bool json, int indent, Budget* budget) : json_(json), indent_(indent), budget_(budget) {}

  absl::Status Write(const Value& value, int level) {
    const size_t before = out_.size();
    if (const std::string* text = value.AsString()) {
      MOE_RETURN_IF_ERROR(budget_->Charge(static_cast<int64_t>(text->size()) * 2));
      json_ ? AppendJsonString(*text, &out_) : AppendQuoted(*text, &out_);
    } else if (const List* list = value.AsList()) {
      return WriteMembers("[", "]", list->items, level, [&](const Value& item) { return Write(item, level + 1); });
    } else if (const Dict* dict = value.AsDict()) {
      return WriteMembers("{", "}", dict->items, level, [&](const auto& member) {
        json_ ? AppendJsonString(member.first, &out_) : AppendQuoted(member.first, &out_);
        out_ += ": ";
        return Write(member.second, level + 1);
      });
    } else {
      MOE_RETURN_IF_ERROR(WriteScalar(value));
    }
    return budget_->Charge(static_cast<int64_t>(out_.size() - before) + kPrintCost);
  }

  std::string Take() { return std::move(out_); }

 private:
  template <typename Members, typename WriteMember>
  absl::Status WriteMembers(std::string_view open, std::string_view close, const Members& members, int level,
                            WriteMember write_member) {
    out_ += open;
    bool first = true;
    for (const auto& member : members) {
      if (!first) out_ += indent_ >= 0 ? "," : ", ";
      first = false;
      MOE_RETURN_IF_ERROR(NewLine(level + 1));
      MOE_RETURN_IF_ERROR(write_member(member));
    }
    if (!members.empty()) MOE_RETURN_IF_ERROR(NewLine(level));
    out_ += close;
    return budget_->Charge(kPrintCost);
  }

  absl::Status NewLine(int level) {
    if (indent_ < 0) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(budget_->Charge(int64_t{indent_} * level + 1));
    out_.append("\n").append(static_cast<size_t>(indent_) * level, ' ');
    return absl::OkStatus();
  }

  absl::Status WriteScalar(const Value& value) {
    if (const bool* boolean = value.AsBool()) {
      out_ += json_ ? (*boolean ? "true" : "false") : (*boolean ? "True" : "False");
    } else if (value.IsNone()) {
      out_ += json_ ? "null" : "None";
    } else if (const int64_t* number = value.AsInt()) {
      out_ += std::to_string(*number);
    } else if (const double* real = value.AsFloat()) {
      out_ += FloatText(*real);
    } else if (json_) {
      return absl::InvalidArgumentError(Concat("tojson: ", value.TypeName(), " has no JSON form"));
    } else {
      out_ += value.IsUndefined() ? "Undefined" : Concat("<", value.TypeName(), ">");
    }
    return absl::OkStatus();
  }

  const bool json_;
  const int indent_;
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
  Writer writer(/*json=*/false, /*indent=*/-1, budget);
  MOE_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

absl::StatusOr<std::string> ToJson(const Value& value, int indent, Budget* budget) {
  Writer writer(/*json=*/true, indent, budget);
  MOE_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace moestro::text::jinja
