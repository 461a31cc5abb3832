#include "common/engine/cuda/device_weights.h"

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/model/schema.h"

namespace moestro::engine {
namespace {

constexpr int64_t kArrayAlignment = 256;

// Calls visit(array, bytes) for the arrays of a layer, or of what follows the last one.
template <typename Visit>
void VisitPart(const weights::ModelSpec& spec, model::ModelWeights& weights, int64_t layer, const Visit& visit) {
  if (layer == spec.num_layers) {
    visit(weights.final_norm, spec.hidden_size * int64_t{4});
    model::VisitArrays(weights.head, visit);
    return;
  }
  model::VisitArrays(spec, weights.layers[layer].attention, visit);
  model::VisitArrays(spec, weights.layers[layer].feed_forward, visit);
}

model::ModelWeights WithoutExperts(const model::ModelWeights& weights) {
  model::ModelWeights others{{}, {}, weights.final_norm, weights.head};
  for (const model::LayerWeights& layer : weights.layers) {
    const model::FeedForwardWeights& w = layer.feed_forward;
    others.layers.push_back({layer.attention, {w.norm, w.router, w.bias, w.logit_bias, {}, w.dense, w.shared_gate}});
  }
  return others;
}

int64_t PartBytes(const weights::ModelSpec& spec, model::ModelWeights& weights, int64_t layer) {
  int64_t bytes = 0;
  VisitPart(spec, weights, layer, [&](auto&, int64_t array) { bytes += RoundUp(array, kArrayAlignment); });
  return bytes;
}

}  // namespace

int64_t DeviceWeights::Bytes(const weights::ModelSpec& spec, const model::ModelWeights& weights) {
  model::ModelWeights others = WithoutExperts(weights);
  int64_t bytes = 0;
  for (int64_t layer = 0; layer <= spec.num_layers; ++layer) bytes += PartBytes(spec, others, layer);
  return bytes;
}

absl::StatusOr<DeviceWeights> DeviceWeights::Copy(device::Device& device, const weights::ModelSpec& spec,
                                                  const model::ModelWeights& weights) {
  DeviceWeights copied;
  copied.weights_ = WithoutExperts(weights);
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream("weights"));
  for (int64_t layer = 0; layer <= spec.num_layers; ++layer) {
    const std::string name =
        layer == spec.num_layers ? "weights of the head" : absl::StrCat("weights of layer ", layer);
    MOE_ASSIGN_OR_RETURN(device::Memory memory, device.Allocate(PartBytes(spec, copied.weights_, layer), name));
    uint8_t* to = memory.data();
    absl::Status status;
    VisitPart(spec, copied.weights_, layer, [&](auto& array, int64_t bytes) {
      if (status.ok()) status = stream->CopyToDevice(to, reinterpret_cast<const uint8_t*>(array), bytes);
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(to);
      to += RoundUp(bytes, kArrayAlignment);
    });
    copied.memory_.push_back(std::move(memory));
    MOE_RETURN_IF_ERROR(status);
  }
  MOE_RETURN_IF_ERROR(stream->Synchronize());
  return copied;
}

}  // namespace moestro::engine
