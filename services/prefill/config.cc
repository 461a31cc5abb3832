#include "services/prefill/config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/collective/shared/region.h"
#include "common/process/flag_check.h"
#include "common/roofline/pass_rows.h"
#include "services/prefill/device_shares.h"

namespace moestro::prefill {
namespace {

using device::DeviceName;
using device::ParseDeviceName;

std::string OwnFlag(const StreamConfig& config) {
  return config.devices.empty() ? "--device " + config.device : "--devices " + config.devices;
}

absl::StatusOr<std::vector<DeviceName>> OwnDevices(const StreamConfig& config) {
  const std::string flag = OwnFlag(config);
  const std::string& list = config.devices;
  if (list.empty()) {
    if (config.device == "none") return std::vector<DeviceName>();
    const std::optional<DeviceName> name = ParseDeviceName(config.device);
    if (name) return std::vector<DeviceName>{*name};
    return absl::InvalidArgumentError(flag + ": use none, host or cuda:N (cuda: the first GPU)");
  }
  if (config.device != "none") {
    return absl::InvalidArgumentError(flag + " and --device " + config.device + ": use one of them");
  }
  if (list == "none") return std::vector<DeviceName>();
  std::vector<DeviceName> names;
  const std::vector<std::string> entries = absl::StrSplit(list, ',');
  for (const std::string& entry : entries) {
    const std::optional<DeviceName> name = ParseDeviceName(entry);
    if (!name) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": '", entry, "' is not a device; use host, or the numbers of GPUs (0,1)"));
    }
    names.push_back(*name);
  }
  return names;
}

absl::Status CheckSeveral(const std::string& flag, const std::vector<DeviceName>& devices) {
  if (std::ssize(devices) > collective::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", devices.size(), " devices, use at most ", collective::kMaxRanks));
  }
  const auto is_cuda = [](const DeviceName& device) { return device.cuda_ordinal.has_value(); };
  const int64_t gpus = std::ranges::count_if(devices, is_cuda);
  if (gpus > 0 && gpus < std::ssize(devices)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     ": devices that share a prompt exchange rows in every layer, so that GPUs would wait for the "
                     "host; use GPUs (--devices 0,1) or host devices (--devices host,host)"));
  }
  for (const DeviceName& device : devices) {
    if (is_cuda(device) && std::ranges::count(devices, device) > 1) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": ", device.Text(), " is listed twice; list a GPU once"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateStreamConfig(const PrefillConfig& prefill) {
  const StreamConfig& config = prefill.stream;
  MOE_ASSIGN_OR_RETURN(const std::vector<DeviceName> devices, config.DeviceNames());
  const bool has_cpu_bits = devices.empty() || (devices.size() == 1 && !devices[0].cuda_ordinal);
  if (prefill.mla_form.choice == MlaFormChoice::kAbsorbed && !has_cpu_bits) {
    return absl::InvalidArgumentError("--mla-form absorbed: promises the bits of the CPU, but " + config.DeviceFlag() +
                                      " computes others; use auto, or --device host");
  }
  MOE_RETURN_IF_ERROR(config.DeviceShares().status());
  if (config.device_exchange == DeviceExchange::kPeer && devices.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device-exchange peer: ", config.DeviceFlag(), " names ", devices.size(),
                     " devices; use auto, or several that share prompts (--devices 0,1)"));
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 50;
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-memory", config.memory_bytes, 0, kMaxBytes));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-dense-bytes", config.dense_bytes, 1, kMaxBytes));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--device-pin-bytes", config.pin_bytes, 0, kMaxBytes));
  if (config.ring_slots != 0) MOE_RETURN_IF_ERROR(CheckFlagRange("--ring-slots", config.ring_slots, 2, 1 << 20));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--min-pass-tokens", config.min_pass_tokens, 1, int64_t{1} << 32));
  if (!(config.device_timeout_seconds >= 0.1 && config.device_timeout_seconds <= 3600)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device-timeout-seconds ", config.device_timeout_seconds, ": use 0.1 to 3600"));
  }
  return CheckFlagRange("--stream-from-tokens", config.from_tokens, 1, int64_t{1} << 32);
}

}  // namespace

std::string StreamConfig::DeviceFlag() const {
  return borrows() ? OwnFlag(*this) + " --borrow-device " + borrow_device : OwnFlag(*this);
}

bool StreamConfig::has_gpu() const {
  const absl::StatusOr<std::vector<DeviceName>> names = DeviceNames();
  return names.ok() &&
         std::ranges::any_of(*names, [](const DeviceName& name) { return name.cuda_ordinal.has_value(); });
}

absl::StatusOr<std::vector<DeviceName>> StreamConfig::DeviceNames() const {
  MOE_ASSIGN_OR_RETURN(std::vector<DeviceName> names, OwnDevices(*this));
  if (borrows()) {
    const std::optional<DeviceName> name = ParseDeviceName(borrow_device);
    if (!name) {
      return absl::InvalidArgumentError("--borrow-device " + borrow_device +
                                        ": use none, host or cuda:N, as decode's --device");
    }
    if (names.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--borrow-device needs a device of the role's own: --device ",
                                                     name->cuda_ordinal ? "cuda:N, another GPU" : "host"));
    }
    names.push_back(*name);
  }
  MOE_RETURN_IF_ERROR(CheckSeveral(DeviceFlag(), names));
  return names;
}

absl::StatusOr<std::vector<int64_t>> StreamConfig::DeviceShares() const {
  MOE_ASSIGN_OR_RETURN(const std::vector<DeviceName> names, DeviceNames());
  if (measures_shares()) return std::vector<int64_t>(names.size(), 1);
  const std::string flag = "--device-shares " + device_shares;
  std::vector<int64_t> shares;
  const std::vector<std::string> entries = absl::StrSplit(device_shares, ',');
  for (const std::string& entry : entries) {
    int64_t share = 0;
    if (!absl::SimpleAtoi(entry, &share) || share < 1 || share > kMaxDeviceShare) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": '", entry, "' is not a share; use a number from 1 to ",
                                                     kMaxDeviceShare,
                                                     " for each device, in proportion to its speed (3,2), or auto"));
    }
    shares.push_back(share);
  }
  if (shares.size() != names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", shares.size(), " shares, but ", DeviceFlag(), " names ",
                                                   names.size(),
                                                   " devices; use a share for each of them, in their order, or auto"));
  }
  return shares;
}

absl::Status ValidatePrefillConfig(const PrefillConfig& config) {
  MOE_RETURN_IF_ERROR(ValidateNodeOptions(config.node));
  MOE_RETURN_IF_ERROR(ValidateCpuOptions(config.cpu));
  if (config.activations == PrefillActivations::kFp8 && config.mla_form.choice == MlaFormChoice::kAbsorbed) {
    return absl::InvalidArgumentError(
        "--mla-form absorbed: promises the same bits on every path, but decode does not round inputs as "
        "--prefill-activations fp8 does");
  }
  MOE_RETURN_IF_ERROR(CheckFlagRange("--chunk-tokens", config.chunk_tokens, 0, roofline::kMostPassRows));
  MOE_RETURN_IF_ERROR(CheckFlagRange("--queue-limit", config.queue_limit, 0, 1 << 20));
  MOE_RETURN_IF_ERROR(
      CheckFlagRange("--unabsorbed-from-tokens", config.mla_form.unabsorbed_from_tokens, 1, int64_t{1} << 32));
  return ValidateStreamConfig(config);
}

}  // namespace moestro::prefill
