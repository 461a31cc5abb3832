// Sets of CPUs as text, in the syntax of the kernel: "0-3,8,10-11".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

// CPUs beyond this number cannot be told to the scheduler (cpu_set_t).
inline constexpr int kMostCpus = 1024;

// The CPUs, ascending, each once. INVALID_ARGUMENT quotes the part that is wrong: not a number or range, a range that
// goes down, a number of kMostCpus or more, or nothing at all.
absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text);

// The same syntax; runs of CPUs become ranges. `cpus` ascends. "none" if it is empty.
std::string FormatCpuList(std::span<const int> cpus);

}  // namespace moestro
