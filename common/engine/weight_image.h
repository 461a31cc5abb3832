// The model's weights as modules: what is staged on the device as one, in the order of use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/head.h"
#include "common/weights/model_spec.h"

namespace moestro::engine {

// A run of host memory that holds arrays of one module, and where in the module's staged image it goes.
struct StagedRange {
  const uint8_t* source = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;
};

// A module's memory on the device is an image of its tensors in the segment: arrays that lie together there (all of an
// expert's, most of attention's) become one copy.
struct ModuleImage {
  std::vector<StagedRange> ranges;  // ascending
  int64_t bytes = 0;                // of the image, a multiple of 4096

  // Where the image at `base` has what `source` points to. REQUIRES: it has it.
  const uint8_t* Relocated(const uint8_t* source, const uint8_t* base) const;
};

enum class ModuleKind {
  kAttention,  // of a layer, with its norm
  kDense,      // a dense layer's MLP, with its norm
  kRouter,     // a MoE layer's router and shared expert, with their norm
  kExpert,     // a routed expert
  kHead,       // some rows of the head, the first ones with the final norm
};
const char* ModuleName(ModuleKind kind);

struct Module {
  ModuleKind kind = ModuleKind::kAttention;
  int64_t layer = 0;
  int64_t index = 0;  // expert, or slice of the head
  int64_t first = 0;  // row of the head's slice
  int64_t rows = 0;   // of the head's slice
  ModuleImage image;
};

// In the order of use: attention, then dense, or router and experts in ascending id, for every layer; then the head, in
// slices of about head_bytes. `weights` points into host memory. Attention holds what this form of it reads.
std::vector<Module> ListModules(const weights::ModelSpec& spec, const model::ModelWeights& weights, model::MlaForm form,
                                int64_t head_bytes);

// A module whose image is on the device, and the module's weights there. REQUIRES of all: the module is one of
// ListModules(spec, weights, form, ..) and of that kind.
struct StagedModule {
  const Module* module = nullptr;
  const uint8_t* base = nullptr;

  model::AttentionWeights Attention(const weights::ModelSpec& spec, model::MlaForm form,
                                    const model::ModelWeights& weights) const;
  // Of a dense layer, or without routed experts.
  model::FeedForwardWeights FeedForward(const weights::ModelSpec& spec, const model::ModelWeights& weights) const;
  model::MlpWeights Expert(const model::ModelWeights& weights) const;
  model::HeadSlice Head(const model::ModelWeights& weights) const;
  const float* FinalNorm(const model::ModelWeights& weights) const;  // null except with the head's first slice
};
std::vector<model::MlpWeights> StagedExperts(const model::ModelWeights& weights, std::span<const StagedModule> experts);

// A device's share of a routed expert, where several devices share its rows as the domains of workers do (DomainRows):
// these rows of all three matrices, and the biases.
ModuleImage ShareImage(const model::MlpWeights& expert, int device, int devices);
// The expert whose share is at `base`. Only the device's rows may be read.
model::MlpWeights StagedShare(const model::MlpWeights& expert, const ModuleImage& share, const uint8_t* base,
                              int device, int devices);

// Rows [first, first + rows) of a packed matrix; `first` is a multiple of the scale block.
PackedMatrix SliceRows(const PackedMatrix& matrix, int64_t first, int64_t rows);

}  // namespace moestro::engine
