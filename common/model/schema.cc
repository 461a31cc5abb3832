#include "common/model/schema.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace moestro::model {
namespace {

// Names are words with dots between them. These are the words that families choose differently: the block of MLPs and
// experts; gate, up and down of an MLP; the shared expert.
struct Dialect {
  std::string_view family;    // ModelSpec::family
  std::string_view words[5];  // empty: as in the segment
};
// The first has the segment's words. They are those of all families that have no row of their own.
constexpr Dialect kDialects[] = {
    {"deepseek_v3", {"mlp", "gate_proj", "up_proj", "down_proj", "shared_experts"}},
    {"mixtral", {"block_sparse_moe", "w1", "w3", "w2"}},
    {"qwen2_moe", {"", "", "", "", "shared_expert"}},
};

// Of the family, a name of the segment.
std::string Published(const Dialect& dialect, const std::string& name) {
  std::vector<std::string> words = absl::StrSplit(name, '.');
  for (std::string& word : words) {
    const auto* const ours = std::ranges::find(kDialects[0].words, word);
    if (ours == std::end(kDialects[0].words)) continue;
    const std::string_view theirs = dialect.words[ours - kDialects[0].words];
    if (!theirs.empty()) word = theirs;
  }
  return absl::StrJoin(words, ".");
}

std::vector<ModelTensor> AsPublished(const weights::ModelSpec& spec, std::vector<ModelTensor> tensors) {
  std::erase_if(tensors, [&](const ModelTensor& tensor) {
    return tensor.role == TensorRole::kKeyUpTransposed || (tensor.role == TensorRole::kHead && spec.tied_head != 0);
  });
  const auto* const dialect = std::ranges::find(kDialects, std::string_view(spec.family), &Dialect::family);
  if (dialect == std::end(kDialects)) return tensors;
  for (ModelTensor& tensor : tensors) tensor.name = Published(*dialect, tensor.name);
  return tensors;
}

}  // namespace

std::vector<ModelTensor> SegmentTensors(const weights::ModelSpec& spec) {
  std::vector<ModelTensor> tensors;
  ModelWeights unused;
  ForEachTensor(spec, unused, [&](const ModelTensor& tensor, auto&) { tensors.push_back(tensor); });
  return tensors;
}

std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec) {
  return AsPublished(spec, SegmentTensors(spec));
}

std::vector<ModelTensor> CheckpointTensors(const weights::ModelSpec& spec, int64_t layer) {
  std::vector<ModelTensor> tensors;
  LayerWeights unused;
  ForEachTensor(spec, layer, unused, [&](const ModelTensor& tensor, auto&) { tensors.push_back(tensor); });
  return AsPublished(spec, std::move(tensors));
}

int64_t ParameterCount(const weights::ModelSpec& spec) {
  int64_t total = 0;
  for (const ModelTensor& tensor : CheckpointTensors(spec)) total += tensor.elements();
  return total;
}

}  // namespace moestro::model
