#include "common/telemetry/prometheus_text.h"

#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace moestro {
namespace {

// name{labels} value [timestamp]; a label's value may contain blanks and braces
struct MetricSample {
  absl::string_view name;
  absl::string_view labels;
  double value = 0;
};

std::optional<MetricSample> ParseSample(absl::string_view line) {
  MetricSample sample{.name = line.substr(0, line.find_first_of("{ ")), .labels = {}};
  absl::string_view rest = line.substr(sample.name.size());
  const size_t close = rest.rfind('}');
  if (absl::StartsWith(rest, "{") && close != absl::string_view::npos) {
    sample.labels = rest.substr(1, close - 1);
    rest = rest.substr(close + 1);
  }
  const std::vector<absl::string_view> words = absl::StrSplit(rest, ' ', absl::SkipEmpty());
  if (words.empty() || !absl::SimpleAtod(words.front(), &sample.value)) return std::nullopt;
  return sample;
}

// The last label of that name: `name="value"`. Values with quotation marks are cut.
std::optional<absl::string_view> Label(absl::string_view labels, absl::string_view name) {
  const std::string key = absl::StrCat(name, "=\"");
  const size_t begin = labels.rfind(key);
  if (begin == absl::string_view::npos || (begin > 0 && labels[begin - 1] != ',')) return std::nullopt;
  const absl::string_view value = labels.substr(begin + key.size());
  return value.substr(0, value.find('"'));
}

// The label `le` of a histogram's bucket: its upper bound, finally "+Inf". Clients write it last, or alone.
std::optional<double> UpperBound(absl::string_view labels) {
  double bound = 0;
  const std::optional<absl::string_view> value = Label(labels, "le");
  if (!value || !absl::SimpleAtod(*value, &bound)) return std::nullopt;
  return bound;
}

}  // namespace

ScrapedMetrics ParsePrometheusText(std::string_view text) {
  ScrapedMetrics metrics;
  std::map<std::string, std::string> types;  // from the # TYPE lines, which precede the values
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    if (absl::StartsWith(line, "# TYPE ")) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() == 4) types[words[2]] = words[3];
      continue;
    }
    const std::optional<MetricSample> sample = ParseSample(line);
    if (!sample) continue;
    const std::string name(sample->name);
    const auto type_of = [&](const std::string& family) {
      const auto found = types.find(family);
      return found == types.end() ? std::string() : found->second;
    };
    if (type_of(name) == "gauge" || type_of(name) == "counter") {
      metrics.values[name] += sample->value;
      if (const auto device = Label(sample->labels, "device")) {
        metrics.by_device[name][std::string(*device)] += sample->value;
      }
    }

    absl::string_view histogram = sample->name;
    if (!absl::ConsumeSuffix(&histogram, "_bucket") || type_of(std::string(histogram)) != "histogram") continue;
    const std::optional<double> bound = UpperBound(sample->labels);
    if (bound) metrics.histograms[std::string(histogram)].at_most[*bound] += sample->value;
  }
  return metrics;
}

}  // namespace moestro
