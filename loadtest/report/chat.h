// The cost of each turn of the conversations. Pure.
#pragma once

#include <span>

#include "loadtest/records/statistics.h"
#include "loadtest/report/report.h"

namespace moestro::loadtest {

// Time to first token and cached share by turn; data["turns"]. Records of ChatWorkload.
void AddChatSection(std::span<const Record> records, const Slo& slo, Report& report);

}  // namespace moestro::loadtest
