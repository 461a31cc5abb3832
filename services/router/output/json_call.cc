#include "services/router/output/json_call.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using Result = JsonCallReader::Result;

bool IsScalarByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.';
}
bool IsSpace(char c) { return kSpace.find(c) != std::string_view::npos; }

std::optional<std::string> StringOf(const std::string& quoted) {
  const json value = json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

size_t JsonValueScanner::Scan(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"' && (!began_ || !open_.empty())) {
      in_string_ = true;
    } else if ((c == '{' || c == '[') && (!began_ || !open_.empty())) {
      open_ += c;
    } else if ((c == '}' || c == ']') && !open_.empty()) {
      if (open_.back() != (c == '}' ? '{' : '[')) return state_ = State::kBroken, i;
      open_.pop_back();
    } else if (began_ && open_.empty()) {  // after a scalar
      const bool ends = IsSpace(c) || c == ',' || c == '}' || c == ']';
      if (!ends && !IsScalarByte(c)) return state_ = State::kBroken, i;
      if (ends) return state_ = State::kComplete, i;
      continue;
    } else if (!IsScalarByte(c) && !(began_ && (IsSpace(c) || c == ',' || c == ':'))) {
      return state_ = State::kBroken, i;
    } else {
      began_ = true;
      continue;
    }
    began_ = true;
    if (!in_string_ && open_.empty()) return state_ = State::kComplete, i + 1;
  }
  return text.size();
}

Result JsonCallReader::Read(PendingText& text, OutputWriter& out) {
  while (true) {
    if (phase_ != Phase::kInKey && phase_ != Phase::kInValue) Use(text, text.SpaceSize());
    if (text.rest().empty()) return Result::kMore;
    const Phase phase = phase_;
    const Result result = phase == Phase::kInKey     ? ScanKey(text)
                          : phase == Phase::kInValue ? ScanValue(text, out)
                                                     : Structure(text, out);
    if (result == Result::kBroken && announced_) out.EndCall();
    if (result != Result::kMore) return result;
  }
}

std::string_view JsonCallReader::Use(PendingText& text, size_t bytes) {
  const std::string_view used = text.Take(bytes);
  if (!announced_) raw_ += used;
  return used;
}

// One byte of the object itself, or the look at a value's first.
Result JsonCallReader::Structure(PendingText& text, OutputWriter& out) {
  const char c = text.rest()[0];
  if (phase_ == Phase::kValue) return BeginValue(c, out);
  // Models write a comma after the last value, at times.
  const bool ends = c == '}' && (phase_ == Phase::kFirstKey || phase_ == Phase::kLaterKey || phase_ == Phase::kNext);
  const bool begins_key = c == '"' && (phase_ == Phase::kFirstKey || phase_ == Phase::kLaterKey);
  if (begins_key) {
    scanner_ = {};
    key_.clear();
    phase_ = Phase::kInKey;
    return Result::kMore;  // The scanner reads the quote.
  }
  if (phase_ == Phase::kOpen && c == '{') {
    phase_ = Phase::kFirstKey;
  } else if (phase_ == Phase::kColon && c == ':') {
    phase_ = Phase::kValue;
  } else if (phase_ == Phase::kNext && c == ',') {
    phase_ = Phase::kLaterKey;
  } else if (!ends) {
    return Result::kBroken;
  }
  Use(text, 1);
  return ends ? EndObject(out) : Result::kMore;
}

Result JsonCallReader::ScanKey(PendingText& text) {
  key_ += Use(text, scanner_.Scan(text.rest()));
  if (scanner_.state() == JsonValueScanner::State::kComplete) phase_ = Phase::kColon;
  return Result::kMore;
}

Result JsonCallReader::BeginValue(char first, OutputWriter& out) {
  scanner_ = {};
  value_.clear();
  streams_ = false;
  phase_ = Phase::kInValue;
  role_ = Role::kIgnored;
  if (announced_) return Result::kMore;
  if (key_ == "\"name\"") {
    role_ = Role::kName;
  } else if (key_ == "\"arguments\"" || key_ == "\"parameters\"") {
    role_ = Role::kArguments;
    streams_ = first == '{' && !name_.empty();
    if (streams_) Announce(out);
  } else if (key_ != "\"id\"" && key_ != "\"type\"") {
    return Result::kBroken;
  }
  return Result::kMore;
}

Result JsonCallReader::ScanValue(PendingText& text, OutputWriter& out) {
  const std::string_view piece = Use(text, scanner_.Scan(text.rest()));
  if (streams_) {
    out.Arguments(piece);
  } else if (role_ != Role::kIgnored) {
    value_ += piece;
  }
  if (scanner_.state() == JsonValueScanner::State::kBroken) return Result::kBroken;
  if (scanner_.state() == JsonValueScanner::State::kInside) return Result::kMore;
  phase_ = Phase::kNext;
  return streams_ ? Result::kMore : EndValue();
}

Result JsonCallReader::EndValue() {
  const bool is_string = value_.starts_with('"');
  if (role_ == Role::kName) {
    name_ = StringOf(value_).value_or("");
    return name_.empty() ? Result::kBroken : Result::kMore;
  }
  if (role_ != Role::kArguments) return Result::kMore;
  arguments_ = value_ == "null" ? "{}" : is_string ? StringOf(value_).value_or("") : value_;
  has_arguments_ = true;
  // The reader follows the brackets of an object; of the text of one, it has not.
  const bool is_object = arguments_.starts_with('{') && (!is_string || IsJson(arguments_));
  return is_object ? Result::kMore : Result::kBroken;
}

void JsonCallReader::Announce(OutputWriter& out) {
  out.BeginCall(name_);
  announced_ = true;
  raw_.clear();
}

Result JsonCallReader::EndObject(OutputWriter& out) {
  if (!announced_) {
    if (name_.empty() || (needs_arguments_ && !has_arguments_)) return Result::kBroken;
    Announce(out);
    out.Arguments(has_arguments_ ? arguments_ : "{}");
  }
  out.EndCall();
  return Result::kCall;
}

}  // namespace moestro::router
