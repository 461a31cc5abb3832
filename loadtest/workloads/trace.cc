#include "loadtest/workloads/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace moestro::loadtest {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = int64_t{1} << 20;  // more is an error in the file

absl::StatusOr<int64_t> TokenCount(const json& entry, const char* field, int64_t least) {
  const auto it = entry.find(field);
  if (it == entry.end()) return absl::InvalidArgumentError(absl::StrCat(field, " is missing"));
  if (!it->is_number_integer() || it->get<double>() < static_cast<double>(least) ||
      it->get<double>() > static_cast<double>(kMaxTokens)) {
    return absl::InvalidArgumentError(absl::StrCat(field, " must be a whole number from ", least, " to ", kMaxTokens));
  }
  return it->get<int64_t>();
}

absl::StatusOr<TraceEntry> ParseLine(absl::string_view line) {
  const json entry = json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object()) return absl::InvalidArgumentError("not a JSON object");
  static constexpr const char* kFields[] = {"arrival", "prompt_tokens", "output_tokens", "prefix_id", "prefix_tokens"};
  for (const auto& [name, value] : entry.items()) {
    if (std::ranges::find(kFields, name) == std::end(kFields)) {
      return absl::InvalidArgumentError(absl::StrCat("unknown field \"", name, "\""));
    }
  }
  TraceEntry out;
  const auto arrival = entry.find("arrival");
  if (arrival == entry.end() || !arrival->is_number() || !(arrival->get<double>() >= 0)) {
    return absl::InvalidArgumentError("arrival must be seconds, 0 or more");
  }
  out.arrival = arrival->get<double>();
  MOE_ASSIGN_OR_RETURN(out.prompt_tokens, TokenCount(entry, "prompt_tokens", 1));
  MOE_ASSIGN_OR_RETURN(out.output_tokens, TokenCount(entry, "output_tokens", 1));
  if (entry.contains("prefix_id") != entry.contains("prefix_tokens")) {
    return absl::InvalidArgumentError("prefix_id and prefix_tokens must be given together");
  }
  if (!entry.contains("prefix_id")) return out;
  if (!entry["prefix_id"].is_string()) return absl::InvalidArgumentError("prefix_id must be a string");
  out.prefix_id = entry["prefix_id"].get<std::string>();
  MOE_ASSIGN_OR_RETURN(out.prefix_tokens, TokenCount(entry, "prefix_tokens", 0));
  if (out.prefix_tokens > out.prompt_tokens) {
    return absl::InvalidArgumentError("prefix_tokens must not exceed prompt_tokens");
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text) {
  std::vector<TraceEntry> entries;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    absl::StatusOr<TraceEntry> entry = ParseLine(line);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrCat("line ", number));
    entries.push_back(*std::move(entry));
  }
  std::ranges::stable_sort(entries, {}, &TraceEntry::arrival);
  return entries;
}

}  // namespace moestro::loadtest
