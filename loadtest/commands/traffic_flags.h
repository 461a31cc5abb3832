// Flags of the commands that send single requests of random lengths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/client/server.h"
#include "loadtest/report/report.h"
#include "loadtest/workloads/traffic.h"

namespace moestro {
class FlagSet;
}  // namespace moestro

namespace moestro::loadtest {

struct TrafficFlags {
  std::string prompt_tokens = "128-1024";
  std::string output_tokens = "32-128";
  std::string prompt_file;
  float temperature = 0;
};
void AddTrafficFlags(FlagSet& command, TrafficFlags& flags);
// INVALID_ARGUMENT names the flag; NOT_FOUND names the prompt file.
absl::StatusOr<TrafficOptions> ToTrafficOptions(const TrafficFlags& flags, const ModelInfo& model, uint64_t seed);
// Adds the facts at the head of the report.
void AddTrafficFacts(const TrafficFlags& flags, Report& report);

// NOT_FOUND names the flag and the file.
absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path);

}  // namespace moestro::loadtest
