#include "common/engine/cuda/cuda_prefill.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/engine/cuda/attention.h"
#include "common/engine/cuda/feed_forward.h"

namespace moestro::engine {
namespace {

constexpr int64_t kBf16Bytes = sizeof(uint16_t);

}  // namespace

absl::Status CudaPrefill::Begin(const PromptRun& run) {
  MOE_RETURN_IF_ERROR(CheckForm(run.form));
  MOE_RETURN_IF_ERROR(CheckRun(spec_, run));
  run_ = run;
  inputs_.Begin(run.rows, device_);
  const IndexRange last = run.PassRows(run.passes - 1);
  results_.Begin(spec_, run.rows.subspan(last.begin, last.size()));
  const int64_t earlier = run.most_tokens_before();
  MOE_ASSIGN_OR_RETURN(
      activations_,
      CudaActivations::Allocate(
          device_, spec_, CudaActivations::WithSpare(spec_, Sizes(run.max_pass_rows()), earlier, run.spare_bytes)));
  const auto pinned = [&](int64_t tokens) {
    return device::PinnedBuffer<uint16_t>::Create(device_, tokens * spec_.kv_dim());
  };
  MOE_ASSIGN_OR_RETURN(computed_, pinned(run.max_pass_rows()));
  if (earlier == 0) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(gathered_, pinned(earlier));
  MOE_ASSIGN_OR_RETURN(gathered_copied_, device_.NewEvent());
  return absl::OkStatus();
}

void CudaPrefill::End() {
  activations_ = {};
  gathered_.reset();
  computed_.reset();
  gathered_copied_.reset();
  is_gathered_ = false;
}

uint16_t* CudaPrefill::LatentsOf(const LayerStep& step) const {
  const int64_t layers = spec_.num_layers - run_.first_layer;
  const int64_t layer = std::max<int64_t>(0, step.layer - run_.first_layer);  // embedding belongs to none
  return activations_.latents[(step.pass * layers + layer) % kKvBuffers];
}

CudaRows CudaPrefill::RowsOf(const LayerStep& step) const {
  const IndexRange rows = run_.PassRows(step.pass);
  const int64_t position = run_.rows[rows.begin].position;
  return {.spec = spec_,
          .activations = activations_,
          .rows = rows.size(),
          .residual = activations_.residual,
          .cosine = activations_.cosine,
          .sine = activations_.sine,
          .cache = ContiguousCache(spec_, LatentsOf(step)),
          .stripes = {{{{0, rows.size()}, position}}},
          .first_token = position / kv::kPageTokens * kv::kPageTokens};
}

absl::Status CudaPrefill::Launch(const LayerStep& step, std::span<const StagedModule> modules, device::Stream& stream,
                                 const std::atomic<bool>& stopped) {
  const auto enqueue = [&](Work work) {
    return stream.Launch({.name = StepName(step.kind),
                          .cost = {},
                          .run = [work = std::move(work), layer = step.layer, &stopped](void* native) -> absl::Status {
                            if (stopped) return absl::CancelledError("the run has been given up");
                            return Annotate(work(static_cast<cuda::Stream>(native)),
                                            absl::StrFormat("layer %d", layer));
                          }});
  };
  const CudaRows rows = RowsOf(step);
  const auto move_residuals = [&] {
    return MoveResiduals(spec_, step, run_.first_layer, run_.PassResiduals(step.pass), activations_.residual, stream);
  };
  const auto staged_mlps = [&] { return modules[0].FeedForward(spec_, weights_); };
  switch (step.kind) {
    case StepKind::kEmbed:
      if (step.pass == 0) MOE_RETURN_IF_ERROR(results_.Clear(activations_, stream));
      MOE_RETURN_IF_ERROR(inputs_.Copy(run_.PassRows(step.pass), activations_, stream));
      MOE_RETURN_IF_ERROR(enqueue([this, rows](cuda::Stream native) { return inputs_.Embed(rows, native); }));
      return move_residuals();
    case StepKind::kAttention:
      return Attention(step, modules[0].Attention(spec_, run_.form, weights_), stream, enqueue);
    case StepKind::kDense:
      MOE_RETURN_IF_ERROR(enqueue([rows, w = staged_mlps()](cuda::Stream native) { return Dense(rows, w, native); }));
      return move_residuals();
    case StepKind::kRoute:
      return enqueue(
          [rows, w = staged_mlps(), has_nan = activations_.has_nan + step.layer](cuda::Stream native) -> absl::Status {
            MOE_RETURN_IF_ERROR(Route(rows, w, rows.activations.choices, has_nan, native));
            return PlanRows(rows, OwnRows(rows), native);
          });
    case StepKind::kExperts:
      return enqueue([rows, experts = StagedExperts(weights_, modules), first = modules[0].module->index](
                         cuda::Stream native) { return Experts(rows, OwnRows(rows), experts, first, native); });
    case StepKind::kSharedExpert:
      MOE_RETURN_IF_ERROR(
          enqueue([rows, w = staged_mlps().dense](cuda::Stream native) { return AddSharedExpert(rows, w, native); }));
      return move_residuals();
    case StepKind::kHead: {
      const model::HeadSlice slice = modules[0].Head(weights_);
      MOE_RETURN_IF_ERROR(enqueue([this, rows, slice, norm = modules[0].FinalNorm(weights_)](cuda::Stream native) {
        return results_.LaunchHead(rows, norm, slice, native);
      }));
      if (slice.first + slice.weights.rows < spec_.vocab_size) return absl::OkStatus();
      return results_.Fetch(activations_, stream);
    }
    case StepKind::kDispatch:
    case StepKind::kCombine:
      break;  // one device exchanges nothing
  }
  MOE_CHECK(false);
  return absl::OkStatus();
}

absl::Status CudaPrefill::Attention(const LayerStep& step, const model::AttentionWeights& w, device::Stream& stream,
                                    Enqueue enqueue) {
  const CudaRows rows = RowsOf(step);
  const CudaActivations& a = activations_;
  const CudaStripe& stripe = rows.stripes[0];
  uint16_t* const latents = LatentsOf(step);
  // Earlier parts from the first token that a row sees on.
  const int64_t first_seen = w.window == 0 ? 0 : std::max<int64_t>(0, stripe.position + 1 - w.window);
  const int64_t first_part = std::min(first_seen / a.part_tokens * a.part_tokens, rows.first_token);
  const IndexRange before{first_part, rows.first_token};
  const auto load = [&](IndexRange tokens, uint16_t* to) -> absl::Status {
    if (tokens.size() == 0) return absl::OkStatus();
    return stream.CopyToDevice(BytesOf(to), BytesOf(gathered_->get() + (tokens.begin - first_part) * spec_.kv_dim()),
                               tokens.size() * spec_.kv_dim() * kBf16Bytes);
  };
  const bool has_earlier = stripe.position > first_part;
  const bool together = before.size() <= a.earlier_tokens;
  if (has_earlier) {
    MOE_RETURN_IF_ERROR(GatherEarlier(step.layer, {first_part, stripe.position}));
    MOE_RETURN_IF_ERROR(load({rows.first_token, stripe.position}, latents));
    if (together) MOE_RETURN_IF_ERROR(load(before, a.earlier));
  }
  MOE_RETURN_IF_ERROR(enqueue([rows, w](cuda::Stream native) { return ProjectDown(rows, w, native); }));
  for (int64_t head = 0; head < spec_.num_heads; head += HeadsTogether(spec_)) {
    const IndexRange heads{head, std::min(head + HeadsTogether(spec_), spec_.num_heads)};
    MOE_RETURN_IF_ERROR(
        enqueue([rows, w, heads](cuda::Stream native) { return ProjectQueries(rows, w, heads, native); }));
    for (int64_t token = first_part; token < rows.first_token; token += a.part_tokens) {
      const IndexRange tokens{token, std::min(token + a.part_tokens, rows.first_token)};
      if (!together) MOE_RETURN_IF_ERROR(load(tokens, a.earlier));
      const KvPart part{a.earlier + (together ? token - first_part : 0) * spec_.kv_dim(), tokens.begin, tokens.size(),
                        /*is_first=*/token == first_part, /*is_last=*/false};
      MOE_RETURN_IF_ERROR(
          enqueue([rows, w, heads, part](cuda::Stream native) { return Attend(rows, w, heads, part, native); }));
    }
    const KvPart own{latents, rows.first_token, stripe.end() - rows.first_token,
                     /*is_first=*/rows.first_token == first_part, /*is_last=*/true};
    MOE_RETURN_IF_ERROR(
        enqueue([rows, w, heads, own](cuda::Stream native) { return Attend(rows, w, heads, own, native); }));
  }
  if (has_earlier) MOE_RETURN_IF_ERROR(stream.Record(*gathered_copied_));
  return enqueue([rows, w](cuda::Stream native) { return AddOutput(rows, w, rows.activations.attn_out, native); });
}

// For one copy, not one a page: each would wait for an expert's that is on the bus.
absl::Status CudaPrefill::GatherEarlier(int64_t layer, IndexRange tokens) {
  if (std::exchange(is_gathered_, true)) MOE_RETURN_IF_ERROR(gathered_copied_->Wait());
  run_.pages[run_.rows[0].sequence].ReadRows(layer, tokens, gathered_->get());
  return absl::OkStatus();
}

// For the same reason one copy, which the host takes apart.
absl::Status CudaPrefill::Store(const LayerStep& step, device::Stream& stream) {
  const CudaRows rows = RowsOf(step);
  const CudaStripe& stripe = rows.stripes[0];
  const int64_t kv_dim = spec_.kv_dim();
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(computed_->get()),
                                        BytesOf(LatentsOf(step) + (stripe.position - rows.first_token) * kv_dim),
                                        stripe.rows.size() * kv_dim * kBf16Bytes));
  MOE_RETURN_IF_ERROR(stream.Synchronize());
  run_.pages[run_.rows[0].sequence].StoreRows(step.layer, {stripe.position, stripe.end()}, computed_->get());
  return absl::OkStatus();
}

absl::Status CudaPrefill::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return results_.Logits(spec_, [&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro::engine
