#include "loadtest/metrics/prometheus_text.h"

#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace moestro::loadtest {

std::map<std::string, double> ParsePrometheusText(std::string_view text) {
  std::set<std::string> wanted;  // by their # TYPE lines, which stand before the values
  std::map<std::string, double> values;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    if (absl::StartsWith(line, "# TYPE ")) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() == 4 && (words[3] == "gauge" || words[3] == "counter")) wanted.insert(words[2]);
      continue;
    }
    const std::string name(line.substr(0, line.find_first_of("{ ")));
    if (!wanted.contains(name)) continue;
    // name{labels} value [timestamp]; a label's value may hold blanks
    const size_t after = line.rfind('}') == absl::string_view::npos ? name.size() : line.rfind('}') + 1;
    const std::vector<absl::string_view> words = absl::StrSplit(line.substr(after), ' ', absl::SkipEmpty());
    double value = 0;
    if (!words.empty() && absl::SimpleAtod(words.front(), &value)) values[name] += value;
  }
  return values;
}

}  // namespace moestro::loadtest
