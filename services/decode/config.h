// Settings of the decode role.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/experts/domains/schedulers.h"
#include "common/experts/schedulers.h"
#include "common/kernels/cpu/input_coding.h"
#include "common/process/choice.h"
#include "common/process/cpu_options.h"
#include "common/process/node_options.h"
#include "services/decode/throughput/task_list.h"

namespace moestro::decode {

// What the batch is for. Throughput: tokens a second of many requests, whoever waits (MoE-Lightning's offline batches).
enum class Mode { kLatency, kThroughput };
inline constexpr std::array<Choice<Mode>, 2> kModeWords = {
    {{"latency", Mode::kLatency}, {"throughput", Mode::kThroughput}}};

// How much one step may hold.
struct StepLimits {
  int max_batch = 0;             // sequences
  double bound_seconds = 0;      // on a step in which sequences decode; infinity: none
  double bound_over_base = 0;    // which is at least this many times the same step without prompts
  int64_t max_chunk_tokens = 0;  // of prompts, even when no sequence decodes

  int64_t rows() const { return max_batch + max_chunk_tokens; }
};

// Whether a step is cut into two batches: the device computes one while the CPU computes the other's experts.
enum class Overlap { kAuto, kOn, kOff };
inline constexpr std::array<Choice<Overlap>, 3> kOverlapWords = {
    {{"auto", Overlap::kAuto}, {"on", Overlap::kOn}, {"off", Overlap::kOff}}};

inline constexpr std::array<Choice<experts::Schedule>, 3> kScheduleWords = {
    {{"fixed", experts::Schedule::kFixed},
     {"hybrid", experts::Schedule::kHybrid},
     {"on-demand", experts::Schedule::kOnDemand}}};
inline constexpr std::array<Choice<experts::Policy>, 4> kPolicyWords = {
    {{"lru", experts::Policy::kLru},
     {"lfu", experts::Policy::kLfu},
     {"mrs", experts::Policy::kMrs},
     {"first-layers", experts::Policy::kFirstLayers}}};

inline constexpr std::array<Choice<experts::DomainSchedule>, 4> kDomainScheduleWords = {
    {{"tri-domain", experts::DomainSchedule::kTriDomain},
     {"klotski", experts::DomainSchedule::kKlotski},
     {"ktransformers", experts::DomainSchedule::kEnhancedKTransformers},
     {"monde", experts::DomainSchedule::kMonde}}};

struct DecodeConfig {
  NodeOptions node;
  CpuShare share;
  CpuOptions cpu;
  std::vector<int> lent_cpus;  // CPUs that TakeCpuShare leaves to prefill; used while prefill computes nothing
  Int8Activations int8_activations = Int8Activations::kPublished;  // the same for all roles that compute
  Mode mode = Mode::kLatency;
  // 0: with mode latency what follows from measured times (step_limits.h), else the mode's own.
  int max_batch = 0;                   // sequences in one step (the paper's Y)
  int itl_bound_ms = 0;                // prompt chunks are sized so that steps stay below this
  int64_t max_chunk_tokens = 0;        // of prompts in one step, even when no sequence decodes
  int64_t kv_tokens = 0;               // capacity of the KV pool; 0 = chosen at start, see PlanPool
  int64_t reserve_ahead_tokens = 256;  // room for generated tokens that Reserve requests; more is requested as needed
  bool prefix_cache = true;            // keep the KV of prompts and answers for requests that share the prefix
  int lease_timeout_seconds = 600;     // a reserved lease must be started or renewed within this
  std::string device = "none";         // where attention is computed: none (on the CPU, with the rest), host, cuda:N
  int devices = 1;                     // with --mode throughput: such devices that share every routed expert
  int64_t copy_rate = 0;               // of --device host: bytes per second each way; 0: as fast as it can
  Overlap overlap = Overlap::kAuto;    // with a device
  int64_t expert_cache_bytes = 0;      // device memory for routed experts that the device computes; 0: none
  experts::Schedule expert_schedule = experts::Schedule::kFixed;
  experts::Policy expert_policy = experts::Policy::kLru;
  int64_t prefetch_layers = 0;  // whose experts are foreseen and may be loaded ahead
  int64_t near_units = 0;       // instead: threads that stand for processors on DIMMs, a third domain; 0: none
  int64_t near_rate = 0;        // bytes per second that each of these reads; 0: as fast as it can
  experts::DomainSchedule domain_schedule = experts::DomainSchedule::kTriDomain;
  BatchSchedule batch_schedule = BatchSchedule::kCgoPipe;  // with --mode throughput and a device
  int64_t micro_batch = 0;                                 // then: sequences of one at most; 0: chosen for each step
  int64_t device_memory_bytes =
      0;                  // then: for experts and what steps hand over; 0: all of a GPU's, 4 GiB of the host's
  int64_t pin_bytes = 0;  // limit of the weights registered for copies of these experts; 0: all
  bool poison_freed_pages = false;  // see KvPoolOptions::poison_freed
  std::string routing_trace;        // file that records the experts of all tokens; empty: none

  // Those that are set, and the mode's own, as long as nothing is measured.
  StepLimits limits() const;
  // The GPU that `device` names; nullopt if it names none.
  std::optional<int> cuda_ordinal() const;
};

// INVALID_ARGUMENT names the flag.
absl::Status ValidateDecodeConfig(const DecodeConfig& config);

}  // namespace moestro::decode
