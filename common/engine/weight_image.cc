#include "common/engine/weight_image.h"

#include <algorithm>
#include <type_traits>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/model/moe/moe_tasks.h"
#include "common/model/schema.h"
#include "common/weights/tensor_size.h"

namespace moestro::engine {
namespace {

// Arrays are put together across what lies between them in the segment: padding up to the next tensor and, behind FP8
// codes and their scales, exceptions, which only CPUs use: a bit for 256 codes.
constexpr int64_t MaxGapAfter(int64_t bytes) {
  return bytes / (256 * 8) + weights::kScaleAlignment + weights::kTensorAlignment;
}
constexpr int64_t kImageAlignment = 4096;

class ImageBuilder {
 public:
  template <typename T>
  void operator()(const T*& array, int64_t bytes) {
    ranges_.push_back({reinterpret_cast<const uint8_t*>(array), bytes, 0});
  }

  ModuleImage Build() {
    std::ranges::sort(ranges_, {}, &StagedRange::source);
    ModuleImage image;
    for (const StagedRange& range : ranges_) {
      if (!image.ranges.empty()) {
        StagedRange& last = image.ranges.back();
        if (range.source - (last.source + last.bytes) <= MaxGapAfter(last.bytes)) {
          last.bytes = std::max(last.bytes, range.source + range.bytes - last.source);
          image.bytes = last.offset + last.bytes;
          continue;
        }
      }
      image.ranges.push_back({range.source, range.bytes, RoundUp(image.bytes, kImageAlignment)});
      image.bytes = image.ranges.back().offset + range.bytes;
    }
    image.bytes = RoundUp(image.bytes, kImageAlignment);
    return image;
  }

 private:
  std::vector<StagedRange> ranges_;
};

class Relocation {
 public:
  Relocation(const ModuleImage& image, const uint8_t* base) : image_(image), base_(base) {}
  template <typename T>
  void operator()(const T*& array, int64_t) const {
    array = reinterpret_cast<const T*>(image_.Relocated(reinterpret_cast<const uint8_t*>(array), base_));
  }

 private:
  const ModuleImage& image_;
  const uint8_t* base_;
};

ModuleImage ImageOf(const weights::ModelSpec& spec, model::MlaForm form, model::AttentionWeights weights) {
  ImageBuilder builder;
  if (form != model::MlaForm::kAbsorbed) weights.key_transposed = PackedMatrix();  // not staged
  model::VisitArrays(spec, weights, builder);
  return builder.Build();
}
ModuleImage ImageOf(const weights::ModelSpec& spec, model::FeedForwardWeights weights) {
  ImageBuilder builder;
  model::VisitArrays(spec, weights, builder);
  return builder.Build();
}
ModuleImage ImageOf(model::MlpWeights weights) {
  ImageBuilder builder;
  model::VisitArrays(weights, builder);
  return builder.Build();
}

void AddHead(const weights::ModelSpec& spec, const model::ModelWeights& weights, int64_t head_bytes,
             std::vector<Module>& modules) {
  const int64_t row_bytes = PackedBytes(weights.head.dtype, kRowGroup, weights.head.cols) / kRowGroup;
  const int64_t rows = std::max(head_bytes / row_bytes / kScaleBlock, int64_t{1}) * kScaleBlock;
  for (int64_t first = 0; first < spec.vocab_size; first += rows) {
    const int64_t count = std::min(rows, spec.vocab_size - first);
    ImageBuilder builder;
    PackedMatrix slice = SliceRows(weights.head, first, count);
    model::VisitArrays(slice, builder);
    const float* norm = weights.final_norm;
    if (first == 0) builder(norm, spec.hidden_size * int64_t{4});
    modules.push_back({ModuleKind::kHead, spec.num_layers, first / rows, first, count, builder.Build()});
  }
}

}  // namespace

const char* ModuleName(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kAttention:
      return "attention";
    case ModuleKind::kDense:
      return "dense";
    case ModuleKind::kRouter:
      return "router and shared expert";
    case ModuleKind::kExpert:
      return "expert";
    case ModuleKind::kHead:
      return "head";
  }
  return "";
}

const uint8_t* ModuleImage::Relocated(const uint8_t* source, const uint8_t* base) const {
  for (const StagedRange& range : ranges) {
    if (source >= range.source && source < range.source + range.bytes) {
      return base + range.offset + (source - range.source);
    }
  }
  MOE_CHECK(false);
  return nullptr;
}

std::vector<Module> ListModules(const weights::ModelSpec& spec, const model::ModelWeights& weights, model::MlaForm form,
                                int64_t head_bytes) {
  std::vector<Module> modules;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const model::LayerWeights& w = weights.layers[layer];
    modules.push_back({ModuleKind::kAttention, layer, 0, 0, 0, ImageOf(spec, form, w.attention)});
    const bool is_moe = spec.IsMoeLayer(layer);
    model::FeedForwardWeights others = w.feed_forward;
    others.experts.clear();
    modules.push_back(
        {is_moe ? ModuleKind::kRouter : ModuleKind::kDense, layer, 0, 0, 0, ImageOf(spec, std::move(others))});
    if (!is_moe) continue;
    for (int64_t e = 0; e < spec.num_experts; ++e) {
      modules.push_back({ModuleKind::kExpert, layer, e, 0, 0, ImageOf(w.feed_forward.experts[e])});
    }
  }
  AddHead(spec, weights, head_bytes, modules);
  return modules;
}

model::AttentionWeights StagedModule::Attention(const weights::ModelSpec& spec, model::MlaForm form,
                                                const model::ModelWeights& weights) const {
  model::AttentionWeights staged = weights.layers[module->layer].attention;
  if (form != model::MlaForm::kAbsorbed) staged.key_transposed = PackedMatrix();  // not staged
  model::VisitArrays(spec, staged, Relocation(module->image, base));
  return staged;
}

model::FeedForwardWeights StagedModule::FeedForward(const weights::ModelSpec& spec,
                                                    const model::ModelWeights& weights) const {
  const model::FeedForwardWeights& w = weights.layers[module->layer].feed_forward;
  model::FeedForwardWeights staged{w.norm, w.router, w.bias, w.logit_bias, {}, w.dense, w.shared_gate};
  model::VisitArrays(spec, staged, Relocation(module->image, base));
  return staged;
}

model::MlpWeights StagedModule::Expert(const model::ModelWeights& weights) const {
  model::MlpWeights staged = weights.layers[module->layer].feed_forward.experts[module->index];
  model::VisitArrays(staged, Relocation(module->image, base));
  return staged;
}

std::vector<model::MlpWeights> StagedExperts(const model::ModelWeights& weights,
                                             std::span<const StagedModule> experts) {
  std::vector<model::MlpWeights> staged;
  for (const StagedModule& expert : experts) staged.push_back(expert.Expert(weights));
  return staged;
}

model::HeadSlice StagedModule::Head(const model::ModelWeights& weights) const {
  PackedMatrix staged = SliceRows(weights.head, module->first, module->rows);
  model::VisitArrays(staged, Relocation(module->image, base));
  return {staged, module->first};
}

const float* StagedModule::FinalNorm(const model::ModelWeights& weights) const {
  if (module->index > 0) return nullptr;
  const float* staged = weights.final_norm;
  Relocation(module->image, base)(staged, 0);
  return staged;
}

namespace {

// Calls visit(array, first byte, bytes) for what `rows` need of each array. They begin at a group of rows.
template <typename Visit>
void VisitRows(PackedMatrix& matrix, IndexRange rows, Visit&& visit) {
  if (rows.size() == 0) return;
  const auto part = [&](auto& array, int64_t begin, int64_t end) { visit(array, begin, end - begin); };
  part(matrix.data, PackedBytes(matrix.dtype, rows.begin, matrix.cols),
       PackedBytes(matrix.dtype, rows.end, matrix.cols));
  // Scales of FP8 are those of twice as many rows as a group has.
  const int64_t first = matrix.dtype == DType::kI8 ? rows.begin : rows.begin / kScaleBlock * kScaleBlock;
  if (matrix.scales != nullptr) {
    part(matrix.scales, weights::TensorScaleBytes(matrix.dtype, first, matrix.cols),
         weights::TensorScaleBytes(matrix.dtype, rows.end, matrix.cols));
  }
  if (matrix.compensation != nullptr) {
    part(matrix.compensation, weights::TensorExceptionBytes(matrix.dtype, first, matrix.cols),
         weights::TensorExceptionBytes(matrix.dtype, rows.end, matrix.cols));
  }
}

template <typename Visit>
void VisitShare(model::MlpWeights& expert, int device, int devices, Visit&& visit) {
  const int64_t width = expert.gate.rows, hidden = expert.down.rows;
  const IndexRange gated = model::DomainRows(width, device, devices);
  VisitRows(expert.gate, gated, visit);
  VisitRows(expert.up, gated, visit);
  VisitRows(expert.down, model::DomainRows(hidden, device, devices), visit);
  if (expert.gate_bias == nullptr) return;
  visit(expert.gate_bias, int64_t{0}, width * int64_t{sizeof(float)});
  visit(expert.up_bias, int64_t{0}, width * int64_t{sizeof(float)});
  visit(expert.down_bias, int64_t{0}, hidden * int64_t{sizeof(float)});
}

}  // namespace

ModuleImage ShareImage(const model::MlpWeights& expert, int device, int devices) {
  ImageBuilder builder;
  model::MlpWeights visited = expert;
  VisitShare(visited, device, devices, [&](auto& array, int64_t begin, int64_t bytes) {
    const auto* part = reinterpret_cast<const uint8_t*>(array) + begin;
    builder(part, bytes);
  });
  return builder.Build();
}

model::MlpWeights StagedShare(const model::MlpWeights& expert, const ModuleImage& share, const uint8_t* base,
                              int device, int devices) {
  model::MlpWeights staged = expert;
  VisitShare(staged, device, devices, [&](auto& array, int64_t begin, int64_t) {
    const auto* const part = share.Relocated(reinterpret_cast<const uint8_t*>(array) + begin, base);
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(part - begin);
  });
  return staged;
}

PackedMatrix SliceRows(const PackedMatrix& matrix, int64_t first, int64_t rows) {
  MOE_CHECK(first % kScaleBlock == 0);
  PackedMatrix slice = matrix;
  slice.rows = rows;
  slice.data += PackedBytes(matrix.dtype, first, matrix.cols);
  if (slice.scales != nullptr) slice.scales += weights::TensorScaleBytes(matrix.dtype, first, matrix.cols) / 4;
  if (slice.compensation != nullptr) slice.compensation += first;
  if (slice.exceptions != nullptr) slice.exceptions += ExceptionWords(first, matrix.cols);
  return slice;
}

}  // namespace moestro::engine
