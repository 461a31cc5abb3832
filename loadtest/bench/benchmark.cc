#include "loadtest/bench/benchmark.h"

#include <algorithm>
#include <utility>

namespace moestro::bench {
namespace {

Summary Scaled(const Summary& summary, double factor) {
  return {summary.median * factor, summary.min * factor, summary.max * factor};
}

Summary GigaPerSecond(const Series& series) { return Scaled(AmountPerSecond(series), 1e-9); }

}  // namespace

Row MakeRow(const std::string& name, int threads, const std::string& unit, const Series& series,
            const std::string& counted) {
  Row row;
  row.name = name;
  row.threads = threads;
  row.unit = unit;
  row.rate = GigaPerSecond(series);
  row.microseconds = Scaled(SecondsPerUnit(series), 1e6);
  row.counted = counted;
  return row;
}

void CompareRates(const Series& subject, const std::string& name, const Series& reference, std::optional<double> target,
                  Row* row) {
  row->reference = Reference{name, GigaPerSecond(reference)};
  row->ratio = RateRatio(subject, reference);
  row->target = target;
}

void CompareRoofline(const Series& subject, double bytes_a_unit, const Series& read, const Series& dot,
                     std::optional<double> target, Row* row) {
  const auto seconds = [](double amount, const Sample& sample) { return amount / (sample.amount / sample.seconds); };
  Series allowed;
  for (size_t round = 0; round < subject.size(); ++round) {
    const double operations = subject[round].amount / static_cast<double>(subject[round].units);
    allowed.push_back({.amount = operations,
                       .seconds = std::max(seconds(bytes_a_unit, read[round]), seconds(operations, dot[round])),
                       .units = 1});
  }
  CompareRates(subject, kRoofline, allowed, target, row);
}

void CompareSpeeds(const Series& subject, const std::string& name, const Series& reference,
                   std::optional<double> target, Row* row) {
  row->reference = Reference{name, GigaPerSecond(reference)};
  row->ratio = SpeedRatio(subject, reference);
  row->target = target;
}

Findings OneRow(Row row) {
  Findings findings;
  findings.rows.push_back(std::move(row));
  return findings;
}

}  // namespace moestro::bench
