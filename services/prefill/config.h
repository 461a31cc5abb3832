// What the prefill role can be told.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device_name.h"
#include "common/model/engine.h"
#include "common/process/choice.h"
#include "common/process/cpu_options.h"
#include "common/process/node_options.h"

namespace moestro {

// Which form of MLA a prompt is computed in. Un-absorbed is cheaper for long prompts; absorbed everywhere makes prefill
// and decode, whole and chunked, fresh and resumed requests bit-identical.
enum class MlaFormChoice { kAuto, kAbsorbed, kUnabsorbed };
inline constexpr std::array<Choice<MlaFormChoice>, 3> kMlaFormWords = {{{"auto", MlaFormChoice::kAuto},
                                                                        {"absorbed", MlaFormChoice::kAbsorbed},
                                                                        {"unabsorbed", MlaFormChoice::kUnabsorbed}}};
struct MlaFormPolicy {
  MlaFormChoice choice = MlaFormChoice::kAuto;
  int64_t unabsorbed_from_tokens = 1024;  // auto: shortest prompt that is computed un-absorbed

  MlaForm ForPrompt(int64_t prompt_tokens) const {
    if (choice == MlaFormChoice::kAbsorbed) return MlaForm::kAbsorbed;
    if (choice == MlaFormChoice::kUnabsorbed) return MlaForm::kUnabsorbed;
    return prompt_tokens >= unabsorbed_from_tokens ? MlaForm::kUnabsorbed : MlaForm::kAbsorbed;
  }
};

// Whether and how prompts are streamed (stream/README.md).
struct StreamConfig {
  std::string device = "none";             // none: prompts are computed where the weights lie; host; cuda:N
  std::string devices;                     // instead: a list of host and N, for prompts on several together
  std::string borrow_device = "none";      // decode's, for whole-machine prompts while it has nothing to do
  double device_timeout_seconds = 4;       // one of several that the others wait for may show no sign of life so long
  int64_t memory_bytes = 0;                // of each device; 0: all it has, of the host 4 GiB
  int64_t dense_bytes = int64_t{1} << 30;  // of these, for staged weights that are not routed experts
  int64_t pin_bytes = 0;                   // of the weights, registered for copies at most; 0: all
  int64_t ring_slots = 0;                  // experts in device memory at once; 0: as many as fit
  int64_t min_pass_tokens = 16384;         // a prompt is never cut into shorter passes
  int64_t from_tokens = 2048;              // new tokens of the shortest prompt that is streamed
  std::string trace_file;                  // the timeline of the last streamed prompt; empty: none

  // The devices that --device or --devices names; then, if there is one, that to borrow. INVALID_ARGUMENT names the
  // flag, and what to use.
  absl::StatusOr<std::vector<device::DeviceName>> DeviceNames() const;
  bool has_gpu() const;  // false for a list that DeviceNames refuses
  bool borrows() const { return borrow_device != "none"; }
  // The flag and its value, for messages.
  std::string DeviceFlag() const;
};

struct PrefillConfig {
  NodeOptions node;
  // Less important than decode: where the two meet on a CPU (whole-machine prompts, machines with one core), niceness 5
  // leaves prefill a quarter of it (the scheduler's weights are 335 and 1024), and decode's threads are run as soon as
  // they wake. On CPUs of its own it costs nothing.
  CpuShare share{.nice = 5};
  CpuOptions cpu;
  std::vector<int> lent_cpus;  // that TakeCpuShare leaves to others: whole-machine prompts are computed on them, too
  int chunk_tokens = 256;      // tokens of one forward pass
  int queue_limit = 256;       // requests that may wait
  MlaFormPolicy mla_form;
  StreamConfig stream;
};

// INVALID_ARGUMENT names the flag.
absl::Status ValidatePrefillConfig(const PrefillConfig& config);

}  // namespace moestro
