#include "common/platform/cpu_list.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro {
namespace {

absl::Status Wrong(std::string_view part, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("'", absl::string_view(part.data(), part.size()), "' ", why));
}

// The error quotes `part`.
absl::StatusOr<int> ParseCpu(std::string_view number, std::string_view part) {
  int cpu = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, cpu);
  const bool is_number = error != std::errc::invalid_argument && stop == end && number.front() != '-';
  if (!is_number) return Wrong(part, "is not a CPU or a range of CPUs; write it like 0-3,8");
  if (error == std::errc::result_out_of_range || cpu >= kMostCpus) {
    return Wrong(part, absl::StrCat("exceeds CPU ", kMostCpus - 1).c_str());
  }
  return cpu;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, comma - begin);
    const size_t dash = part.find('-');
    MOE_ASSIGN_OR_RETURN(const int first, ParseCpu(part.substr(0, dash), part));
    int last = first;
    if (dash != std::string_view::npos) {
      MOE_ASSIGN_OR_RETURN(last, ParseCpu(part.substr(dash + 1), part));
    }
    if (last < first) return Wrong(part, "is descending; write the lower CPU first");
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    begin = comma + 1;
  }
  std::ranges::sort(cpus);
  const auto repeated = std::ranges::unique(cpus);
  cpus.erase(repeated.begin(), repeated.end());
  return cpus;
}

std::string FormatCpuList(std::span<const int> cpus) {
  if (cpus.empty()) return "none";
  std::string text;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[begin]);
    if (end - begin > 1) absl::StrAppend(&text, "-", cpus[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace moestro
