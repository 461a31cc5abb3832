// "Achieving Cloud-Grade SLOs for Local Mixture-of-Experts Inference through CPU-GPU Hybrid Design" (OSDI '26): its
// figures and tables, beside this implementation on the paper's node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roofline/cpu_seconds.h"
#include "loadtest/bench/report/report.h"
#include "services/cli/paper/claims.h"
#include "services/cli/plan/hardware_file.h"

namespace moestro::cli {

struct OsdiInput {
  GpuMachine node;                             // two GPUs of its kind, and its CPUs' memory
  roofline::CpuMachine cpu;                    // the same CPUs, computing prompts
  std::optional<bench::BenchReport> measured;  // for Table 1
};

// What --figure takes.
std::vector<std::string> OsdiFigures();

// `figure`: one of OsdiFigures(), or empty for all. INVALID_ARGUMENT names the number that a machine lacks.
absl::StatusOr<PaperReport> MakeOsdiReport(const OsdiInput& input, const std::string& figure);

}  // namespace moestro::cli
