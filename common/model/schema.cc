#include "common/model/schema.h"

namespace moestro {

std::vector<ModelTensor> SegmentTensors(const ModelSpec& spec) {
  std::vector<ModelTensor> tensors;
  ModelWeights unused;
  ForEachTensor(spec, unused, [&](const ModelTensor& tensor, auto&) { tensors.push_back(tensor); });
  return tensors;
}

std::vector<ModelTensor> CheckpointTensors(const ModelSpec& spec) {
  std::vector<ModelTensor> tensors = SegmentTensors(spec);
  std::erase_if(tensors, [](const ModelTensor& tensor) { return tensor.role == TensorRole::kKeyUpTransposed; });
  return tensors;
}

std::vector<ModelTensor> CheckpointTensors(const ModelSpec& spec, int64_t layer) {
  std::vector<ModelTensor> tensors;
  LayerWeights unused;
  ForEachTensor(spec, layer, unused, [&](const ModelTensor& tensor, auto&) {
    if (tensor.role != TensorRole::kKeyUpTransposed) tensors.push_back(tensor);
  });
  return tensors;
}

int64_t ParameterCount(const ModelSpec& spec) {
  int64_t total = 0;
  for (const ModelTensor& tensor : CheckpointTensors(spec)) total += tensor.elements();
  return total;
}

}  // namespace moestro
