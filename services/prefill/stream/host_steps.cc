#include "services/prefill/stream/host_steps.h"

#include <utility>
#include <vector>

#include "common/base/check.h"

namespace moestro {

std::function<absl::Status()> HostStepWork(const ModelSpec& spec, const ModelWeights& weights, MlaForm form,
                                           const Step& step, std::span<const StagedModule> modules,
                                           PromptForward& forward) {
  const int64_t layer = step.layer;
  // Functions that cannot fail.
  const auto always_ok = [](auto work) {
    return [work = std::move(work)] {
      work();
      return absl::OkStatus();
    };
  };
  switch (step.kind) {
    case StepKind::kEmbed:
      return always_ok([&forward, embedding = weights.embedding] { forward.Embed(embedding); });
    case StepKind::kAttention:
      return always_ok([&forward, layer,
                        w = Staged(spec, form, weights.layers[layer].attention, modules[0].module->image,
                                   modules[0].base)] { forward.Attention(layer, w); });
    case StepKind::kDense:
      return always_ok([&forward, w = Staged(spec, weights.layers[layer].feed_forward, modules[0].module->image,
                                             modules[0].base)] { forward.Dense(w); });
    case StepKind::kRoute:
      return [&forward, w = Staged(spec, weights.layers[layer].feed_forward, modules[0].module->image,
                                   modules[0].base)] { return forward.Route(w); };
    case StepKind::kExperts: {
      std::vector<MlpWeights> experts;
      for (const StagedModule& m : modules) {
        experts.push_back(Staged(weights.layers[layer].feed_forward.experts[m.module->index], m.module->image, m.base));
      }
      return always_ok([&forward, experts = std::move(experts), first = modules[0].module->index] {
        forward.Experts({experts, first});
      });
    }
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;
    case StepKind::kSharedExpert:
      return always_ok([&forward, w = Staged(spec, weights.layers[layer].feed_forward, modules[0].module->image,
                                             modules[0].base)] { forward.SharedExpert(w.always); });
    case StepKind::kHead: {
      const Module& m = *modules[0].module;
      const PackedMatrix slice = Staged(SliceRows(weights.head, m.first, m.rows), m.image, modules[0].base);
      const float* norm = nullptr;
      if (m.index == 0) {
        norm = reinterpret_cast<const float*>(
            m.image.Relocated(reinterpret_cast<const uint8_t*>(weights.final_norm), modules[0].base));
      }
      return always_ok([&forward, slice, norm, first = m.first] {
        if (norm != nullptr) forward.FinalNorm(norm);
        forward.Head({slice, first});
      });
    }
  }
  MOE_CHECK(false);
  return nullptr;
}

}  // namespace moestro
