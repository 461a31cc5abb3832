#include "common/roofline/batch_policy.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moestro::roofline {
namespace {

constexpr double kBf16Bytes = 2;
// What a layer streams, and the next one meanwhile.
constexpr double kBuffers = 2;
// What the memory of experts' inputs and products needs beyond them during prefill, as MoE-Lightning has it.
constexpr double kPrefillFragments = 1.2;

double Seconds(const Level& level, const Work& work) {
  return std::max(work.operations / level.flops_per_second, work.bytes / level.memory_bytes_per_second);
}

}  // namespace

BatchModel::BatchModel(const weights::ModelSpec& spec, DType linear, PrefillRows rows)
    : spec_(spec),
      rows_(rows),
      layers_(static_cast<double>(spec.num_layers)),
      moe_layers_(static_cast<double>(spec.num_moe_layers())),
      position_bytes_(KvBytes(spec, 1)) {
  for (const LayerCount& layer : CountModel(spec, linear).layers) {
    other_weights_ += layer.attention.bytes + layer.dense.bytes;
    row_elements_ += layer.attention.elements + layer.dense.elements +
                     static_cast<double>(spec.experts_per_token) * layer.expert.elements;
    if (layer.expert.bytes > 0) expert_ = layer.expert;
  }
  layer_weights_ = static_cast<double>(spec.num_experts) * expert_.bytes;
}

double BatchModel::At(const Line& line, const BatchPolicy& policy) {
  return line.constant + line.weights * policy.resident_weights + line.cache * policy.resident_cache;
}

BatchModel::Line BatchModel::LinkBytes(const BatchWorkload& workload, const BatchPolicy& policy) const {
  Line bytes;
  const auto stream = [&](double whole, double& share) {
    bytes.constant += whole;
    share -= whole;
  };
  if (policy.device_experts) stream(layer_weights_, bytes.weights);
  if (policy.device_attention) {
    // On average over the generated tokens.
    const double positions = static_cast<double>(policy.requests()) * (workload.prompt + workload.generate / 2);
    stream(positions * position_bytes_, bytes.cache);
  }
  return bytes;
}

BatchModel::Peaks BatchModel::PeaksOf(const Machine& machine, const BatchWorkload& workload,
                                      const BatchPolicy& policy) const {
  const auto devices = static_cast<double>(std::max<int64_t>(machine.devices, 1)),
             width = static_cast<double>(spec_.hidden_size), requests = static_cast<double>(policy.requests()),
             micro_batch = static_cast<double>(policy.micro_batch),
             chosen = static_cast<double>(spec_.experts_per_token);
  const double row_bytes = kBf16Bytes * width * devices;  // each device keeps all rows
  const double rows = micro_batch * workload.prompt;
  Peaks peaks;
  const double pinned = policy.device_experts ? kBuffers : 0;
  const double all = requests * (workload.prompt + workload.generate) * position_bytes_ * layers_;
  peaks.host = {.constant = row_bytes * requests * workload.prompt + (moe_layers_ + pinned) * layer_weights_ + all,
                .weights = -(moe_layers_ + pinned) * layer_weights_,
                .cache = -all};
  if (machine.devices == 0) {
    peaks.host.constant += other_weights_;
    return peaks;
  }
  peaks.device_prefill.constant =
      other_weights_ +
      row_bytes * (rows_ == PrefillRows::kAll ? kBuffers * rows + requests * workload.prompt : 2 * kBuffers * rows);
  peaks.device_decode.constant = other_weights_ + 2 * row_bytes * requests;  // rows and residuals
  for (Line* device : {&peaks.device_prefill, &peaks.device_decode}) {
    if (!policy.device_experts) break;
    // Gate, up and down of a row; its input once for each of them.
    const double expert_rows = rows * chosen * (width * devices + 3 * static_cast<double>(spec_.moe_intermediate_size));
    device->constant += kBuffers * layer_weights_ + kPrefillFragments * kBf16Bytes * expert_rows;
    device->weights += (moe_layers_ - kBuffers) * layer_weights_;
  }
  // Prefill: what stays of a layer, and micro-batches on their way to the host. Decode: room for all, wherever it lies.
  const double layer = requests * workload.prompt * position_bytes_;
  const double buffers = kBuffers * rows * position_bytes_;
  peaks.device_prefill.constant += buffers;
  peaks.device_prefill.cache += layer - buffers;
  if (policy.device_attention) peaks.device_decode.constant += all;
  return peaks;
}

Work BatchModel::Attention(const BatchWorkload& workload, const BatchPolicy& policy) const {
  const double positions = workload.prompt + workload.generate;
  double seen = 0;
  for (int64_t l = 0; l < spec_.num_layers; ++l) {
    const int64_t window = spec_.WindowOf(l);
    seen += window == 0 ? positions : std::min(positions, static_cast<double>(window));
  }
  return DecodeAttention(spec_, static_cast<double>(policy.micro_batch), seen / layers_);
}

PolicyCost BatchModel::CostOf(const Machine& machine, const BatchWorkload& workload, const BatchPolicy& policy) const {
  const auto micro_batches = static_cast<double>(policy.micro_batches);
  PolicyCost cost;
  if (policy.device_experts || policy.device_attention) {
    cost.link_seconds = At(LinkBytes(workload, policy), policy) / machine.link_bytes_per_second;
  }
  const double attention =
      micro_batches * Seconds(policy.device_attention ? machine.device : machine.host, Attention(workload, policy));
  (policy.device_attention ? cost.device_seconds : cost.host_seconds) += attention;
  (policy.device_experts ? cost.device_seconds : cost.host_seconds) +=
      micro_batches * Seconds(policy.device_experts ? machine.device : machine.host,
                              DecodeExperts(spec_, expert_, static_cast<double>(policy.micro_batch)));
  cost.layer_seconds = std::max({cost.link_seconds, cost.device_seconds, cost.host_seconds});
  cost.step_seconds = moe_layers_ * cost.layer_seconds + (layers_ - moe_layers_) * attention;
  cost.tokens_per_second =
      static_cast<double>(policy.requests()) * workload.generate / ((workload.generate - 1) * cost.step_seconds);
  const Peaks peaks = PeaksOf(machine, workload, policy);
  cost.device_bytes = std::max(At(peaks.device_prefill, policy), At(peaks.device_decode, policy));
  cost.host_bytes = At(peaks.host, policy);
  return cost;
}

double BatchModel::PrefillSeconds(const Machine& machine, const BatchWorkload& workload,
                                  const BatchPolicy& policy) const {
  const double operations = 2 * static_cast<double>(policy.requests()) * workload.prompt * row_elements_;
  if (machine.devices == 0) return operations / machine.host.flops_per_second;
  const double streamed = moe_layers_ * layer_weights_ * (1 - policy.resident_weights);
  return std::max(operations / machine.device.flops_per_second, streamed / machine.link_bytes_per_second);
}

// The best shares are a corner of the polygon that memories and 0 <= share <= 1 bound: bytes are linear in both.
std::optional<BatchPolicy> BatchModel::WithBestShares(const Machine& machine, const BatchWorkload& workload,
                                                      BatchPolicy policy) const {
  const Peaks peaks = PeaksOf(machine, workload, policy);
  const Line link = LinkBytes(workload, policy);
  // Each must be at most 0.
  std::array<Line, 7> limits = {peaks.device_prefill, peaks.device_decode, peaks.host};
  limits[0].constant -= kDeviceMemoryShare * machine.device.memory_bytes;
  limits[1].constant -= kDeviceMemoryShare * machine.device.memory_bytes;
  limits[2].constant -= kHostMemoryShare * machine.host.memory_bytes;
  limits[3] = {.weights = -1};
  limits[4] = {.constant = policy.device_experts ? -1.0 : 0.0, .weights = 1};
  limits[5] = {.cache = -1};
  limits[6] = {.constant = policy.device_attention ? -1.0 : 0.0, .cache = 1};
  std::optional<BatchPolicy> best;
  for (size_t i = 0; i < limits.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Line &a = limits[i], &b = limits[j];
      const double determinant = a.weights * b.cache - b.weights * a.cache;
      if (determinant == 0) continue;
      policy.resident_weights = (a.cache * b.constant - b.cache * a.constant) / determinant;
      policy.resident_cache = (b.weights * a.constant - a.weights * b.constant) / determinant;
      bool fits = true;
      for (size_t k = 0; k < limits.size(); ++k) fits = fits && (k == i || k == j || At(limits[k], policy) <= 0);
      if (fits && (!best || At(link, policy) < At(link, *best))) best = policy;
    }
  }
  return best;
}

}  // namespace moestro::roofline
