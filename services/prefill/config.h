// Settings of the prefill role.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device_name.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/model/engine.h"
#include "common/process/choice.h"
#include "common/process/cpu_options.h"
#include "common/process/node_options.h"
#include "common/roofline/traffic.h"

namespace moestro::prefill {

// The form of MLA in which a prompt is computed. Un-absorbed is cheaper for long prompts. Absorbed everywhere makes
// prefill and decode, whole and chunked, fresh and resumed requests bit-identical.
enum class MlaFormChoice { kAuto, kAbsorbed, kUnabsorbed };
inline constexpr std::array<Choice<MlaFormChoice>, 3> kMlaFormWords = {{{"auto", MlaFormChoice::kAuto},
                                                                        {"absorbed", MlaFormChoice::kAbsorbed},
                                                                        {"unabsorbed", MlaFormChoice::kUnabsorbed}}};
struct MlaFormPolicy {
  MlaFormChoice choice = MlaFormChoice::kAuto;
  int64_t unabsorbed_from_tokens = 1024;  // auto: shortest prompt that is computed un-absorbed

  model::MlaForm ForPrompt(int64_t prompt_tokens) const {
    if (choice == MlaFormChoice::kAbsorbed) return model::MlaForm::kAbsorbed;
    if (choice == MlaFormChoice::kUnabsorbed) return model::MlaForm::kUnabsorbed;
    return prompt_tokens >= unabsorbed_from_tokens ? model::MlaForm::kUnabsorbed : model::MlaForm::kAbsorbed;
  }
};

// What prompts make of the inputs of FP8 weights, which are published for inputs in FP8. kAuto: FP8 on GPUs that
// multiply it, where it is faster; BF16, which rounds less, on the CPU and elsewhere.
enum class PrefillActivations { kAuto, kFp8, kBf16 };
inline constexpr std::array<Choice<PrefillActivations>, 3> kPrefillActivationsWords = {
    {{"auto", PrefillActivations::kAuto}, {"fp8", PrefillActivations::kFp8}, {"bf16", PrefillActivations::kBf16}}};

// How the devices that share a prompt share its experts: every device sees all rows, or those that its experts have.
// Standard is for comparison: it sends more where experts are many.
inline constexpr std::array<Choice<roofline::ExpertParallelism>, 2> kExpertParallelismWords = {
    {{"small", roofline::ExpertParallelism::kSmall}, {"standard", roofline::ExpertParallelism::kStandard}}};

// How the devices that share a prompt exchange rows, keys and values: through the host's memory, or from device to
// device. kAuto: the latter where they can.
enum class DeviceExchange { kAuto, kHost, kPeer };
inline constexpr std::array<Choice<DeviceExchange>, 3> kDeviceExchangeWords = {
    {{"auto", DeviceExchange::kAuto}, {"host", DeviceExchange::kHost}, {"peer", DeviceExchange::kPeer}}};

// Whether and how prompts are streamed (stream/README.md).
struct StreamConfig {
  std::string device = "none";         // none: prompts are computed in place; host; cuda:N
  std::string devices;                 // instead: several that share prompts, as a list of host and N
  std::string borrow_device = "none";  // decode's device, for whole-machine prompts while decode has no work
  roofline::ExpertParallelism expert_parallel = roofline::ExpertParallelism::kSmall;  // of several devices
  DeviceExchange device_exchange = DeviceExchange::kAuto;                             // of several devices
  std::string device_shares = "auto";      // of several devices, as a list: how large their parts of a prompt are
  double device_timeout_seconds = 4;       // a device that others wait for counts as hung after this long
  int64_t memory_bytes = 0;                // of each device; 0: all of a GPU's, 4 GiB of the host's
  int64_t dense_bytes = int64_t{1} << 30;  // part of these for staged weights other than routed experts
  int64_t pin_bytes = 0;                   // limit of the weights registered for copies; 0: all
  int64_t ring_slots = 0;                  // experts in device memory at once; 0: as many as fit
  int64_t min_pass_tokens = 16384;         // a prompt is never cut into shorter passes
  int64_t from_tokens = 2048;              // new tokens of the shortest streamed prompt
  std::string trace_file;                  // for the timeline of the last streamed prompt; empty: none

  // The devices that --device or --devices names; then the borrowed one, if any. INVALID_ARGUMENT names the flag and
  // the allowed values.
  absl::StatusOr<std::vector<device::DeviceName>> DeviceNames() const;
  // The shares (RankSetup's) of these devices, in the same order: all 1 if they are to be measured. INVALID_ARGUMENT as
  // above.
  absl::StatusOr<std::vector<int64_t>> DeviceShares() const;
  bool measures_shares() const { return device_shares == "auto"; }
  bool has_gpu() const;  // false for a list that DeviceNames refuses
  bool borrows() const { return borrow_device != "none"; }
  // The flag and its value, for messages.
  std::string DeviceFlag() const;
};

struct PrefillConfig {
  NodeOptions node;
  // Less important than decode. The two meet on a CPU while cores change hands, for streamed whole-machine prompts, and
  // on machines with one core. There, niceness 5 leaves prefill a quarter of the CPU (the scheduler's weights are 335
  // and 1024). Decode's threads run as soon as they wake. On CPUs of its own it costs nothing.
  CpuShare share{.nice = 5};
  CpuOptions cpu;
  Int8Activations int8_activations = Int8Activations::kPublished;  // the same for all roles that compute
  PrefillActivations activations = PrefillActivations::kAuto;
  std::vector<int> lent_cpus;  // CPUs that TakeCpuShare leaves to others; used while decode computes nothing
  int chunk_tokens = 0;        // of one forward pass in place; 0: follows from measured times, see ChooseChunk
  int queue_limit = 256;       // requests that may wait
  MlaFormPolicy mla_form;
  StreamConfig stream;

  // Rows that are measured before a chunk follows from them, and of the tiles of host devices.
  int tile_tokens() const { return chunk_tokens > 0 ? chunk_tokens : 256; }
};

// INVALID_ARGUMENT names the flag.
absl::Status ValidatePrefillConfig(const PrefillConfig& config);

}  // namespace moestro::prefill
