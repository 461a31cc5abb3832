#include "services/prefill/stream/cuda/cuda_compute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/cuda_routing.h"
#include "services/prefill/stream/costs.h"
#include "services/prefill/stream/cuda/attention.h"
#include "services/prefill/stream/cuda/bytes.h"
#include "services/prefill/stream/cuda/feed_forward.h"

namespace moestro {
namespace {

constexpr int64_t kBf16Bytes = sizeof(uint16_t);

}  // namespace

absl::Status CudaCompute::CheckSupported(const ModelSpec& spec) {
  if (spec.has_grouped_queries() && spec.v_head_dim != 128) {
    return absl::UnimplementedError(absl::StrFormat(
        "the CUDA kernels attend with heads of 128 numbers to grouped keys, not of %d", spec.v_head_dim));
  }
  if (spec.has_grouped_queries()) return CheckCudaRouting(spec);
  if (spec.qk_nope_head_dim != 128 || spec.qk_rope_head_dim != 64 || spec.v_head_dim != 128) {
    return absl::UnimplementedError(
        absl::StrFormat("the CUDA kernels have attention heads of 128 + 64 numbers and values of 128, not of %d + %d "
                        "and %d",
                        spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim));
  }
  return CheckCudaRouting(spec);
}

absl::Status CudaCompute::Begin(const PromptRun& run) {
  MOE_RETURN_IF_ERROR(CheckRun(spec_, run));
  run_ = run;
  inputs_.Begin(run.rows);
  const IndexRange last = run.PassRows(run.passes - 1);
  results_.Begin(spec_, run.rows.subspan(last.begin, last.size()));
  MOE_ASSIGN_OR_RETURN(activations_, CudaActivations::Allocate(device_, spec_, CudaSizes::OfPass(run.max_pass_rows())));
  return absl::OkStatus();
}

CudaPass CudaCompute::PassOf(const Step& step) const {
  const IndexRange rows = run_.PassRows(step.pass);
  const int64_t position = run_.rows[rows.begin].position;
  const int64_t attention = step.pass * spec_.num_layers + step.layer;
  return {.spec = spec_,
          .activations = activations_,
          .rows = rows.size(),
          .stripes = {{{{0, rows.size()}, position}}},
          .first_token = position / kPageTokens * kPageTokens,
          .latents = activations_.latents[attention % kKvBuffers]};
}

absl::Status CudaCompute::Launch(const Step& step, std::span<const StagedModule> modules, device::Stream& stream,
                                 const std::atomic<bool>& stopped) {
  device::KernelCost cost = StepCost(spec_, weights_, run_, step, modules);  // charged once
  const auto enqueue = [&](Work work) {
    return stream.Launch({.name = StepName(step.kind),
                          .cost = std::exchange(cost, {.kernels = 0}),
                          .run = [work = std::move(work), layer = step.layer, &stopped](void* native) -> absl::Status {
                            if (stopped) return absl::CancelledError("the run has been given up");
                            return Annotate(work(static_cast<cuda::Stream>(native)),
                                            absl::StrFormat("layer %d", layer));
                          }});
  };
  const CudaPass pass = PassOf(step);
  const auto staged_mlps = [&] {
    const LayerWeights& layer = weights_.layers[step.layer];
    return Staged(spec_, layer.feed_forward, modules[0].module->image, modules[0].base);
  };
  switch (step.kind) {
    case StepKind::kEmbed:
      if (step.pass == 0) MOE_RETURN_IF_ERROR(results_.Clear(activations_, stream));
      MOE_RETURN_IF_ERROR(inputs_.Copy(run_.PassRows(step.pass), activations_, stream));
      return enqueue([pass](cuda::Stream native) { return Embed(pass, native); });
    case StepKind::kAttention:
      return Attention(
          step,
          Staged(spec_, run_.form, weights_.layers[step.layer].attention, modules[0].module->image, modules[0].base),
          stream, enqueue);
    case StepKind::kDense:
      return enqueue([pass, w = staged_mlps()](cuda::Stream native) { return Dense(pass, w, native); });
    case StepKind::kRoute:
      return enqueue(
          [pass, w = staged_mlps(), has_nan = activations_.has_nan + step.layer](cuda::Stream native) -> absl::Status {
            MOE_RETURN_IF_ERROR(RouteRows(pass, w, {pass.activations.ids, pass.activations.weights}, has_nan, native));
            return PlanRows(pass, OwnRows(pass), native);
          });
    case StepKind::kExperts: {
      std::vector<MlpWeights> experts;
      for (const StagedModule& m : modules) {
        const MlpWeights& expert = weights_.layers[step.layer].feed_forward.experts[m.module->index];
        experts.push_back(Staged(expert, m.module->image, m.base));
      }
      return enqueue([pass, experts = std::move(experts), first = modules[0].module->index](cuda::Stream native) {
        return Experts(pass, OwnRows(pass), experts, first, native);
      });
    }
    case StepKind::kSharedExpert:
      return enqueue(
          [pass, w = staged_mlps().always](cuda::Stream native) { return AddSharedExpert(pass, w, native); });
    case StepKind::kHead: {
      const StagedModule slice = modules[0];
      MOE_RETURN_IF_ERROR(enqueue(
          [this, pass, slice](cuda::Stream native) { return results_.LaunchHead(pass, weights_, slice, native); }));
      if (slice.module->first + slice.module->rows < spec_.vocab_size) return absl::OkStatus();
      return results_.Fetch(activations_, stream);
    }
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;  // one device exchanges nothing
  }
  MOE_CHECK(false);
  return absl::OkStatus();
}

absl::Status CudaCompute::Attention(const Step& step, const AttentionWeights& w, device::Stream& stream,
                                    Enqueue enqueue) {
  const CudaPass pass = PassOf(step);
  const CudaActivations& a = activations_;
  const CudaStripe& rows = pass.stripes[0];
  if (rows.position > pass.first_token) {
    MOE_RETURN_IF_ERROR(LoadLatents(step.layer, {pass.first_token, rows.position}, pass.latents, stream));
  }
  MOE_RETURN_IF_ERROR(enqueue([pass, w](cuda::Stream native) { return ProjectDown(pass, w, native); }));
  int64_t loaded = -1;  // the part whose latents are on the device
  for (int64_t head = 0; head < spec_.num_heads; head += HeadsTogether(spec_)) {
    const IndexRange heads{head, std::min(head + HeadsTogether(spec_), spec_.num_heads)};
    MOE_RETURN_IF_ERROR(
        enqueue([pass, w, heads](cuda::Stream native) { return ProjectQueries(pass, w, heads, native); }));
    for (int64_t token = 0; token < pass.first_token; token += a.part_tokens) {
      const IndexRange tokens{token, std::min(token + a.part_tokens, pass.first_token)};
      if (loaded != token) MOE_RETURN_IF_ERROR(LoadLatents(step.layer, tokens, a.earlier, stream));
      loaded = token;
      const KvPart part{a.earlier, tokens.begin, tokens.size(), /*is_first=*/token == 0, /*is_last=*/false};
      MOE_RETURN_IF_ERROR(
          enqueue([pass, w, heads, part](cuda::Stream native) { return Attend(pass, w, heads, part, native); }));
    }
    const KvPart own{pass.latents, pass.first_token, rows.end() - pass.first_token, /*is_first=*/pass.first_token == 0,
                     /*is_last=*/true};
    MOE_RETURN_IF_ERROR(
        enqueue([pass, w, heads, own](cuda::Stream native) { return Attend(pass, w, heads, own, native); }));
  }
  return enqueue([pass, w](cuda::Stream native) { return AddOutput(pass, w, native); });
}

// One copy, not one a page: each would wait for an expert's that is on the bus. What is gathered for it is not pinned,
// so the stream may read it as late as its turn comes; kept until then, for every part of a layer, it would be as large
// as the prefix.
absl::Status CudaCompute::LoadLatents(int64_t layer, IndexRange tokens, uint16_t* to, device::Stream& stream) const {
  std::vector<uint16_t> gathered(tokens.size() * spec_.kv_dim());
  for (int64_t begin = tokens.begin; begin < tokens.end; begin += kPageTokens) {
    const int64_t end = std::min(begin + kPageTokens, tokens.end);
    std::copy_n(run_.pages[run_.rows[0].sequence].Token(layer, begin), (end - begin) * spec_.kv_dim(),
                gathered.data() + (begin - tokens.begin) * spec_.kv_dim());
  }
  const absl::Status copied =
      stream.CopyToDevice(BytesOf(to), BytesOf(gathered.data()), std::ssize(gathered) * kBf16Bytes);
  const absl::Status done = stream.Synchronize();
  return copied.ok() ? done : copied;
}

absl::Status CudaCompute::Store(const Step& step, device::Stream& stream) {
  const CudaPass pass = PassOf(step);
  const KvPages& pages = run_.pages[run_.rows[0].sequence];
  const int64_t end = pass.stripes[0].end();
  for (int64_t begin = pass.stripes[0].position; begin < end;) {
    const int64_t block_end = std::min(RoundUp(begin + 1, kPageTokens), end);
    MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(pages.Token(step.layer, begin)),
                                          BytesOf(pass.latents + (begin - pass.first_token) * spec_.kv_dim()),
                                          (block_end - begin) * spec_.kv_dim() * kBf16Bytes));
    begin = block_end;
  }
  return absl::OkStatus();
}

absl::Status CudaCompute::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return results_.Logits(spec_, [&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro
