// Sets of CPUs as text, in the kernel's syntax: "0-3,8,10-11".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro {

// The scheduler's interface (cpu_set_t) has no CPU of this number or above.
inline constexpr int kMostCpus = 1024;

// The CPUs, ascending, each once. INVALID_ARGUMENT quotes the wrong part: not a number or range, a descending range, a
// number of kMostCpus or more, or an empty text.
absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text);

// The inverse: consecutive CPUs become ranges. `cpus` ascends. "none" if it is empty.
std::string FormatCpuList(std::span<const int> cpus);

}  // namespace moestro
