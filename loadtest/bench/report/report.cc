#include "loadtest/bench/report/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/report/build_info.h"
#include "common/report/number.h"

namespace moestro::bench {
namespace {

template <typename Predicate>
int64_t CountRows(const BenchReport& report, Predicate predicate) {
  int64_t count = 0;
  for (const BenchSection& section : report.sections) count += std::ranges::count_if(section.findings.rows, predicate);
  return count;
}

std::string Share(const PageUse& pages) {
  if (pages.anonymous_bytes == 0) return "none";
  return absl::StrFormat("%.0f %% of %s in huge pages",
                         100 * static_cast<double>(pages.huge_bytes) / static_cast<double>(pages.anonymous_bytes),
                         HumanBytes(pages.anonymous_bytes));
}

}  // namespace

int64_t BenchReport::passed() const {
  return CountRows(*this, [](const Row& row) { return row.passed(); });
}
int64_t BenchReport::missed() const {
  return CountRows(*this, [](const Row& row) { return row.target && !row.passed(); });
}

std::string Verdict(const Row& row) { return !row.target ? "" : row.passed() ? "pass" : "miss"; }

std::string CpuName(const Machine& machine) {
  if (machine.cpu_family == 0) return machine.cpu_model;
  return absl::StrCat(machine.cpu_model, " (family ", machine.cpu_family, ", model ", machine.cpu_number, ")");
}

std::vector<std::pair<std::string, std::string>> MachineFacts(const BenchReport& report) {
  const Machine& m = report.machine;
  const auto cache = [](int64_t bytes) { return bytes == 0 ? std::string("unknown") : HumanBytes(bytes); };
  return {
      {"Date", report.date.empty() ? "unknown" : report.date},
      {"CPU", CpuName(m)},
      {"Instructions", absl::StrJoin(m.cpu_flags, " ")},
      {"Cores", absl::StrCat(m.cores, ", of which ", report.settings.threads, " used")},
      {"Caches", absl::StrCat("L2 ", cache(m.l2_bytes), " per core, L3 ", cache(m.l3_bytes), " in total")},
      {"Memory", HumanBytes(m.memory_bytes)},
      {"Pages of the buffers", absl::StrCat("anonymous memory with madvise: ", Share(m.pages))},
      {"Huge pages", absl::StrCat("anonymous: ", m.huge_pages_anonymous,
                                  "; shared memory, which holds served weights: ", m.huge_pages_shared)},
      {"Kernels", m.kernels_isa},
      {"Ceilings", absl::StrCat(m.probes_isa, ": ", m.dot_instruction, "; reading with prefetch ", m.read_ahead.l1,
                                " bytes ahead into L1 and ", m.read_ahead.l2, " into L2 (0: the hardware's own)")},
      {"Built",
       absl::StrCat(m.compiler, ", ", m.build, ", version ", m.version, ", revision ", RevisionText(m.revision))},
      {"Method",
       absl::StrFormat("preset %s; medians of %d rounds, smallest and largest beside them; in every round each "
                       "kernel runs next to its reference for %g ms or longer",
                       report.settings.preset, report.settings.rounds, 1000 * report.settings.min_sample_seconds)},
  };
}

}  // namespace moestro::bench
