#include "services/cli/plan/simulate_concurrency.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/device/sim/world.h"
#include "common/roofline/work_count.h"
#include "services/decode/overlap/simulate.h"
#include "services/prefill/stream/simulate.h"

namespace moestro::cli {
namespace {

constexpr DType kWeights = DType::kF8E4M3;
// Each round shifts times less than the one before: the experts lose at most a core's share to the copies.
constexpr int kMostRounds = 20;
constexpr double kSettled = 1e-4;  // relative change in a round that no longer counts

bool Settled(double before, double after) { return std::abs(after - before) <= kSettled * after; }

}  // namespace

absl::Status CheckConcurrency(const device::HardwareSpec& hardware) {
  if (hardware.cpu_cores > 0 && hardware.cpu_read_bytes_per_second > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(hardware.name,
                                                 ": decode beside a prompt needs the machine's 'levels.cpu.cores' and ",
                                                 "'levels.cpu.read_bytes_per_second'"));
}

absl::StatusOr<ConcurrentSeconds> SimulateConcurrency(const device::HardwareSpec& hardware,
                                                      const weights::ModelSpec& spec, const ConcurrentLoad& load,
                                                      const prefill::MemoryLimits& limits,
                                                      const engine::CostOptions& costs) {
  MOE_RETURN_IF_ERROR(CheckConcurrency(hardware));
  device::World world;
  const size_t memory =
      world.Shared(hardware.cpu_read_bytes_per_second,
                   {{.name = "copies", .requesters = 1, .rate = hardware.copy_bytes_per_second},
                    {.name = "experts", .requesters = hardware.cpu_cores, .rate = hardware.cpu_read_bytes_per_second}});
  const device::World::Share copies = {memory, 0}, experts = {memory, 1};
  const device::SimView prefill = {world, "prefill", copies};
  const roofline::ModelCount model = roofline::CountModel(spec, kWeights);
  const decode::DecodeLoad decoded = {
      .sequences = load.sequences, .context = load.context, .lanes = load.sequences > 1 ? 2 : 1, .steps = load.steps};
  ConcurrentSeconds seconds;
  for (int round = 0; round < kMostRounds; ++round) {
    const ConcurrentSeconds before = seconds;
    if (load.prompt_tokens > 0) {
      world.Begin({&copies, 1});
      MOE_ASSIGN_OR_RETURN(const prefill::SimulatedPrefill prompt,
                           prefill::SimulatePrefill(hardware, spec, kWeights, model::MlaForm::kUnabsorbed,
                                                    load.prompt_tokens, limits, costs, /*cached=*/0, &prefill));
      seconds.prompt = prompt.report.counters.wall_seconds;
    }
    if (load.sequences > 0) {
      world.Begin({&experts, 1});
      MOE_ASSIGN_OR_RETURN(seconds.decode, decode::SimulateDecode(hardware, spec, model, decoded, world, experts));
    }
    if (load.prompt_tokens == 0 || load.sequences == 0 ||
        (Settled(before.prompt, seconds.prompt) && Settled(before.decode, seconds.decode))) {
      return seconds;
    }
  }
  return absl::InternalError("a prompt and decode that share memory: their times do not settle");
}

}  // namespace moestro::cli
