// The sections that the reports of all workloads share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "loadtest/records/statistics.h"
#include "loadtest/report/report.h"

namespace moestro::loadtest {

nlohmann::json ToJson(const Distribution& distribution);
nlohmann::json ToJson(const GroupSummary& summary);

// "12.3 ms", "1.25 s"
std::string Seconds(double seconds);

// Adds requests, errors, goodput and paths; latencies; the curves of latency and throughput. Also sets data["all"] and
// data["groups"]. `seconds`: duration of the run.
void AddCommonSections(std::span<const Record> records, double seconds, const Slo& slo, Report& report);

// Every request, for data["requests"].
nlohmann::json RequestsJson(std::span<const Record> records);

}  // namespace moestro::loadtest
