#include "services/prefill/stream/cuda/cuda_compute.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/cuda_routing.h"
#include "common/model/head.h"
#include "services/prefill/stream/costs.h"
#include "services/prefill/stream/cuda/attention.h"
#include "services/prefill/stream/cuda/feed_forward.h"

namespace moestro {
namespace {

constexpr int64_t kBf16Bytes = sizeof(uint16_t);

uint8_t* BytesOf(void* data) { return static_cast<uint8_t*>(data); }
const uint8_t* BytesOf(const void* data) { return static_cast<const uint8_t*>(data); }

}  // namespace

absl::Status CudaCompute::CheckSupported(const ModelSpec& spec) {
  if (spec.has_grouped_queries()) {
    return absl::FailedPreconditionError(
        "prefill with CUDA is there for multi-head latent attention, not for grouped queries");
  }
  if (spec.qk_nope_head_dim != 128 || spec.qk_rope_head_dim != 64 || spec.v_head_dim != 128) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the CUDA kernels have attention heads of 128 + 64 numbers and values of 128, not of %d + %d "
                        "and %d",
                        spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim));
  }
  return CheckCudaRouting(spec);
}

absl::Status CudaCompute::Begin(const PromptRun& run) {
  MOE_RETURN_IF_ERROR(CheckRun(spec_, run));
  run_ = run;
  const int64_t pairs = rope_.pairs(), rows = std::ssize(run.rows);
  cosine_.resize(rows * pairs);
  sine_.resize(rows * pairs);
  for (int64_t row = 0; row < rows; ++row) {
    rope_.Angles(run.rows[row].position, &cosine_[row * pairs], &sine_[row * pairs]);
  }
  const IndexRange last = run.PassRows(run.passes - 1);
  wanted_ = RowsWithLogits(run.rows.subspan(last.begin, last.size()));
  logits_.resize(wanted_.size() * spec_.vocab_size);
  has_nan_.assign(spec_.num_layers, 0);
  MOE_ASSIGN_OR_RETURN(activations_, CudaActivations::Allocate(device_, spec_, run.max_pass_rows()));
  return absl::OkStatus();
}

CudaPass CudaCompute::PassOf(const Step& step) const {
  const IndexRange rows = run_.PassRows(step.pass);
  const int64_t position = run_.rows[rows.begin].position;
  const int64_t attention = step.pass * spec_.num_layers + step.layer;
  return {.spec = spec_,
          .activations = activations_,
          .rows = rows.size(),
          .position = position,
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
      return Embed(step, stream, enqueue);
    case StepKind::kAttention:
      return Attention(
          step,
          Staged(spec_, run_.form, weights_.layers[step.layer].attention, modules[0].module->image, modules[0].base),
          stream, enqueue);
    case StepKind::kDense:
      return enqueue([pass, w = staged_mlps()](cuda::Stream native) { return Dense(pass, w, native); });
    case StepKind::kRoute:
      return enqueue([pass, w = staged_mlps(), has_nan = activations_.has_nan + step.layer](cuda::Stream native) {
        return RouteRows(pass, w, has_nan, native);
      });
    case StepKind::kExperts: {
      std::vector<MlpWeights> experts;
      for (const StagedModule& m : modules) {
        const MlpWeights& expert = weights_.layers[step.layer].feed_forward.experts[m.module->index];
        experts.push_back(Staged(expert, m.module->image, m.base));
      }
      return enqueue([pass, experts = std::move(experts), first = modules[0].module->index](cuda::Stream native) {
        return Experts(pass, experts, first, native);
      });
    }
    case StepKind::kSharedExpert:
      return enqueue(
          [pass, w = staged_mlps().always](cuda::Stream native) { return AddSharedExpert(pass, w, native); });
    case StepKind::kHead:
      return Head(step, modules[0], stream, enqueue);
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;  // one device exchanges nothing
  }
  MOE_CHECK(false);
  return absl::OkStatus();
}

absl::Status CudaCompute::Embed(const Step& step, device::Stream& stream, Enqueue enqueue) {
  const IndexRange rows = run_.PassRows(step.pass);
  const int64_t hidden = spec_.hidden_size, pairs = rope_.pairs();
  const auto copy_floats = [&](float* to, const float* from, int64_t count) {
    return stream.CopyToDevice(BytesOf(to), BytesOf(from), count * static_cast<int64_t>(sizeof(float)));
  };
  MOE_RETURN_IF_ERROR(copy_floats(activations_.cosine, &cosine_[rows.begin * pairs], rows.size() * pairs));
  MOE_RETURN_IF_ERROR(copy_floats(activations_.sine, &sine_[rows.begin * pairs], rows.size() * pairs));
  if (step.pass == 0) {
    MOE_RETURN_IF_ERROR(stream.CopyToDevice(BytesOf(activations_.has_nan), BytesOf(has_nan_.data()),
                                            std::ssize(has_nan_) * static_cast<int64_t>(sizeof(int32_t))));
  }
  auto* const embeddings = reinterpret_cast<uint16_t*>(activations_.sums);  // which nobody needs yet
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t token = run_.rows[rows.begin + i].token;
    MOE_RETURN_IF_ERROR(stream.CopyToDevice(BytesOf(embeddings + i * hidden),
                                            BytesOf(weights_.embedding + token * hidden), hidden * kBf16Bytes));
  }
  return enqueue([embeddings, rows, hidden, residual = activations_.residual](cuda::Stream native) {
    return LaunchStatus(cuda::LaunchEmbed(embeddings, nullptr, rows.size(), hidden, residual, native));
  });
}

absl::Status CudaCompute::Attention(const Step& step, const AttentionWeights& w, device::Stream& stream,
                                    Enqueue enqueue) {
  const CudaPass pass = PassOf(step);
  const CudaActivations& a = activations_;
  if (pass.position > pass.first_token) {
    MOE_RETURN_IF_ERROR(LoadLatents(step.layer, {pass.first_token, pass.position}, pass.latents, stream, enqueue));
  }
  MOE_RETURN_IF_ERROR(enqueue([pass, w](cuda::Stream native) { return ProjectDown(pass, w, native); }));
  int64_t loaded = -1;  // the part whose latents are on the device
  for (int64_t head = 0; head < spec_.num_heads; head += kCudaHeads) {
    const IndexRange heads{head, std::min(head + kCudaHeads, spec_.num_heads)};
    MOE_RETURN_IF_ERROR(
        enqueue([pass, w, heads](cuda::Stream native) { return ProjectQueries(pass, w, heads, native); }));
    for (int64_t token = 0; token < pass.first_token; token += a.part_tokens) {
      const IndexRange tokens{token, std::min(token + a.part_tokens, pass.first_token)};
      if (loaded != token) MOE_RETURN_IF_ERROR(LoadLatents(step.layer, tokens, a.earlier, stream, enqueue));
      loaded = token;
      const KvPart part{a.earlier, tokens.begin, tokens.size(), /*is_first=*/token == 0, /*is_last=*/false};
      MOE_RETURN_IF_ERROR(
          enqueue([pass, w, heads, part](cuda::Stream native) { return Attend(pass, w, heads, part, native); }));
    }
    const KvPart own{pass.latents, pass.first_token, pass.tokens(), /*is_first=*/pass.first_token == 0,
                     /*is_last=*/true};
    MOE_RETURN_IF_ERROR(
        enqueue([pass, w, heads, own](cuda::Stream native) { return Attend(pass, w, heads, own, native); }));
  }
  return enqueue([pass, w](cuda::Stream native) { return AddOutput(pass, w, native); });
}

// One copy, not one a page: each would wait for an expert's that is on the bus.
absl::Status CudaCompute::LoadLatents(int64_t layer, IndexRange tokens, uint16_t* to, device::Stream& stream,
                                      Enqueue enqueue) const {
  const auto gathered = std::make_shared<std::vector<uint16_t>>(tokens.size() * spec_.kv_dim());
  for (int64_t begin = tokens.begin; begin < tokens.end; begin += kPageTokens) {
    const int64_t end = std::min(begin + kPageTokens, tokens.end);
    std::copy_n(run_.pages[run_.rows[0].sequence].Token(layer, begin), (end - begin) * spec_.kv_dim(),
                gathered->data() + (begin - tokens.begin) * spec_.kv_dim());
  }
  MOE_RETURN_IF_ERROR(stream.CopyToDevice(BytesOf(to), BytesOf(gathered->data()), std::ssize(*gathered) * kBf16Bytes));
  // The stream's next work keeps the memory until it has been copied.
  return enqueue([gathered](cuda::Stream) { return absl::OkStatus(); });
}

absl::Status CudaCompute::Store(const Step& step, device::Stream& stream) {
  const CudaPass pass = PassOf(step);
  const KvPages& pages = run_.pages[run_.rows[0].sequence];
  const int64_t end = pass.position + pass.rows;
  for (int64_t begin = pass.position; begin < end;) {
    const int64_t block_end = std::min(RoundUp(begin + 1, kPageTokens), end);
    MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(pages.Token(step.layer, begin)),
                                          BytesOf(pass.latents + (begin - pass.first_token) * spec_.kv_dim()),
                                          (block_end - begin) * spec_.kv_dim() * kBf16Bytes));
    begin = block_end;
  }
  return absl::OkStatus();
}

absl::Status CudaCompute::Head(const Step& step, const StagedModule& staged, device::Stream& stream, Enqueue enqueue) {
  const Module& module = *staged.module;
  const CudaPass pass = PassOf(step);
  const auto count = std::ssize(wanted_);
  if (module.index == 0) {
    const auto* norm =
        reinterpret_cast<const float*>(module.image.Relocated(BytesOf(weights_.final_norm), staged.base));
    const auto norm_wanted = [this, pass, norm](cuda::Stream native) -> absl::Status {
      for (size_t i = 0; i < wanted_.size(); ++i) {
        MOE_RETURN_IF_ERROR(LaunchStatus(
            cuda::LaunchRmsNorm({.x = activations_.residual + wanted_[i] * spec_.hidden_size,
                                 .x_stride = spec_.hidden_size,
                                 .weight = norm,
                                 .rows = 1,
                                 .n = spec_.hidden_size,
                                 .eps = static_cast<float>(spec_.rms_norm_eps),
                                 .out_bf16 = activations_.head_input + static_cast<int64_t>(i) * pass.hidden_stride(),
                                 .out_bf16_stride = pass.hidden_stride()},
                                native)));
      }
      return absl::OkStatus();
    };
    MOE_RETURN_IF_ERROR(enqueue(norm_wanted));
  }
  const PackedMatrix slice = Staged(SliceRows(weights_.head, module.first, module.rows), module.image, staged.base);
  MOE_RETURN_IF_ERROR(enqueue([this, pass, slice, first = module.first, count](cuda::Stream native) {
    return LaunchStatus(cuda::LaunchLinear(
        ShapeOf(slice, activations_.head_input, pass.hidden_stride(), activations_.logits + first, spec_.vocab_size),
        PointersOf(slice), count, native));
  }));
  if (module.first + module.rows < spec_.vocab_size) return absl::OkStatus();
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(has_nan_.data()), BytesOf(activations_.has_nan),
                                        std::ssize(has_nan_) * static_cast<int64_t>(sizeof(int32_t))));
  return stream.CopyToHost(BytesOf(logits_.data()), BytesOf(activations_.logits),
                           std::ssize(logits_) * static_cast<int64_t>(sizeof(float)));
}

absl::Status CudaCompute::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  if (const auto layer = std::ranges::find_if(has_nan_, [](int32_t nan) { return nan != 0; });
      layer != has_nan_.end()) {
    return absl::InternalError(absl::StrFormat("layer %d: scores of experts are NaN", layer - has_nan_.begin()));
  }
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const std::span logits(&logits_[i * spec_.vocab_size], static_cast<size_t>(spec_.vocab_size));
    MOE_RETURN_IF_ERROR(FinishRow(run_.rows[first + wanted_[i]], spec_.token_count, logits));
    on_logits(first + wanted_[i], logits);
  }
  return absl::OkStatus();
}

}  // namespace moestro
