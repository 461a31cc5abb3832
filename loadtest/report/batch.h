// What a batch took as a whole. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "loadtest/records/record.h"
#include "loadtest/report/report.h"

namespace moestro::loadtest {

struct BatchTimes {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill = 0;  // seconds from the first sending until the last request had its first token
  double decode = 0;   // from there to the last token
  double tokens_per_second() const {
    return prefill + decode > 0 ? static_cast<double>(generated_tokens) / (prefill + decode) : 0;
  }
};
// Of the completed requests.
BatchTimes TimesOf(std::span<const Record> records);

// Adds the throughput as the report's finding, and data["batch"].
void AddBatchSection(std::span<const Record> records, Report& report);

}  // namespace moestro::loadtest
