#include "services/decode/config.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/device/device_name.h"
#include "common/kv/format.h"
#include "common/model/routing_trace.h"
#include "common/process/flag_check.h"

namespace moestro::decode {
namespace {

// The latency of tokens allows few sequences and short chunks. Without it, the more rows a step has, the more of them
// share one read of an expert: 1,024 rows are 32 for each of DeepSeek-V3's experts. More take more memory.
constexpr StepLimits kLatencyLimits{.max_batch = 6, .bound_seconds = 0.05, .max_chunk_tokens = 256};
constexpr StepLimits kThroughputLimits{
    .max_batch = 256, .bound_seconds = std::numeric_limits<double>::infinity(), .max_chunk_tokens = 1024};
// Where experts come over a bus in every step, more rows must share one read of them.
constexpr int64_t kStreamedChunkTokens = 4096;

// Of a batch. Each holds a lease, a session of gRPC and a stream of the router, beside its pages.
constexpr int kMostSequences = 8192;

constexpr int kMostDevices = 8;

// Of --mode throughput and a device, together.
absl::Status CheckBatchFlags(const DecodeConfig& config) {
  if (config.mode == Mode::kThroughput && config.device != "none") {
    if (config.cuda_ordinal() && AttendsOnDevice(config.batch_schedule)) {
      return absl::InvalidArgumentError(absl::StrCat("--batch-schedule ",
                                                     WordOf(kBatchScheduleWords, config.batch_schedule),
                                                     ": GPUs do not attend for such batches; use cgopipe, s2 or s3"));
    }
    if (config.expert_cache_bytes > 0) {
      return absl::InvalidArgumentError(
          "--expert-cache-bytes: with --mode throughput experts stream to the device; set --device-memory instead");
    }
    MOE_RETURN_IF_ERROR(CheckFlagRange("--device-count", config.devices, 1, kMostDevices));
    if (config.devices > 1 && config.cuda_ordinal()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device-count ", config.devices, ": GPUs do not share experts yet; use 1, or --device host"));
    }
    if (!config.routing_trace.empty()) {
      return absl::InvalidArgumentError("--routing-trace: not recorded with --mode throughput and a device");
    }
    return absl::OkStatus();
  }
  const auto needs = [](const char* flag) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": needs --mode throughput and a --device"));
  };
  if (config.batch_schedule != BatchSchedule::kCgoPipe) return needs("--batch-schedule");
  if (config.micro_batch > 0) return needs("--micro-batch");
  if (config.device_memory_bytes > 0) return needs("--device-memory");
  if (config.devices != 1) return needs("--device-count");
  return absl::OkStatus();
}

// Of processors near the data.
absl::Status CheckNearFlags(const DecodeConfig& config) {
  MOE_RETURN_IF_ERROR(CheckFlagRange("--near-units", config.near_units, 0, experts::kMostDimms));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--near-rate", config.near_rate, 0, int64_t{1} << 50));
  if (config.near_units == 0) {
    if (config.near_rate == 0 && config.domain_schedule == experts::DomainSchedule::kTriDomain) return absl::OkStatus();
    return absl::InvalidArgumentError("--near-rate and --domain-schedule: need --near-units");
  }
  if (config.device != "host" || config.expert_cache_bytes == 0) {
    return absl::InvalidArgumentError(
        "--near-units: threads stand for processors near the data, for trials; needs --device host and "
        "--expert-cache-bytes");
  }
  if (config.expert_schedule != experts::Schedule::kFixed || config.expert_policy != experts::Policy::kLru ||
      config.prefetch_layers > 0) {
    return absl::InvalidArgumentError(
        "--near-units: --domain-schedule takes the place of --expert-schedule, --expert-policy and --prefetch-layers");
  }
  return absl::OkStatus();
}

}  // namespace

StepLimits DecodeConfig::limits() const {
  StepLimits limits = mode == Mode::kThroughput ? kThroughputLimits : kLatencyLimits;
  if (mode == Mode::kThroughput && device != "none") limits.max_chunk_tokens = kStreamedChunkTokens;
  if (max_batch > 0) limits.max_batch = max_batch;
  if (itl_bound_ms > 0) limits.bound_seconds = itl_bound_ms / 1000.0;
  if (max_chunk_tokens > 0) limits.max_chunk_tokens = max_chunk_tokens;
  return limits;
}

std::optional<int> DecodeConfig::cuda_ordinal() const {
  const std::optional<device::DeviceName> name = device::ParseDeviceName(device);
  return name ? name->cuda_ordinal : std::nullopt;
}

absl::Status ValidateDecodeConfig(const DecodeConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(ValidateCpuOptions(config.cpu));
  const bool throughput = config.mode == Mode::kThroughput;
  if (!throughput && config.max_batch > 64 && config.max_batch <= kMostSequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-batch ", config.max_batch, ": at most 64 with --mode latency; use --mode throughput"));
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--max-batch", config.max_batch, 0, throughput ? kMostSequences : 64));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--itl-bound-ms", config.itl_bound_ms, 0, 60000));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--max-chunk-tokens", config.max_chunk_tokens, 0, 8192));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--reserve-ahead-tokens", config.reserve_ahead_tokens, 1, 1 << 20));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--kv-tokens", config.kv_tokens, 0, int64_t{1} << 32));
  if (config.device != "none" && !device::ParseDeviceName(config.device)) {
    return absl::InvalidArgumentError("--device " + config.device + ": use none, host or cuda:N (cuda: the first GPU)");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--copy-rate", config.copy_rate, 0, int64_t{1} << 50));
  if (config.copy_rate > 0 && config.device != "host") {
    return absl::InvalidArgumentError("--copy-rate: for trials, needs --device host; a GPU's bus has its own rate");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--micro-batch", config.micro_batch, 0, kMostSequences));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-memory", config.device_memory_bytes, 0, int64_t{1} << 50));
  MOE_RETURN_IF_ERROR(CheckBatchFlags(config));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--expert-cache-bytes", config.expert_cache_bytes, 0, int64_t{1} << 50));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-pin-bytes", config.pin_bytes, 0, int64_t{1} << 50));
  if (config.expert_cache_bytes > 0 && config.device == "none") {
    return absl::InvalidArgumentError(
        "--expert-cache-bytes: a device holds the experts, but --device is none; choose a device");
  }
  if (config.expert_schedule != experts::Schedule::kFixed && config.expert_cache_bytes == 0) {
    return absl::InvalidArgumentError(
        "--expert-schedule: the device holds no experts to schedule; set --expert-cache-bytes");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--prefetch-layers", config.prefetch_layers, 0, model::kMaxPredictedLayers));
  const bool has_policy = config.expert_policy != experts::Policy::kLru;
  if ((has_policy || config.prefetch_layers > 0) && config.expert_cache_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(has_policy ? "--expert-policy" : "--prefetch-layers",
                                                   ": the device holds no experts; set --expert-cache-bytes"));
  }
  MOE_RETURN_IF_ERROR(CheckNearFlags(config));
  return CheckFlagRange("--lease-timeout-seconds", config.lease_timeout_seconds, 1, 86400);
}

}  // namespace moestro::decode
