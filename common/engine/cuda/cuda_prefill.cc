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
  inputs_.Begin(run.rows);
  const IndexRange last = run.PassRows(run.passes - 1);
  results_.Begin(spec_, run.rows.subspan(last.begin, last.size()));
  CudaSizes sizes = Sizes(run.max_pass_rows());
  const int64_t most_bytes = CudaActivations::Bytes(spec_, sizes) + run.spare_bytes;
  while (sizes.most_tile_rows < sizes.rows) {  // as few tiles as there is memory for
    CudaSizes longer = sizes;
    longer.most_tile_rows *= 2;
    if (CudaActivations::Bytes(spec_, longer) > most_bytes) break;
    sizes = longer;
  }
  MOE_ASSIGN_OR_RETURN(activations_, CudaActivations::Allocate(device_, spec_, sizes));
  return absl::OkStatus();
}

uint16_t* CudaPrefill::LatentsOf(const LayerStep& step) const {
  return activations_.latents[(step.pass * spec_.num_layers + step.layer) % kKvBuffers];
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
  const auto staged_mlps = [&] { return modules[0].FeedForward(spec_, weights_); };
  switch (step.kind) {
    case StepKind::kEmbed:
      if (step.pass == 0) MOE_RETURN_IF_ERROR(results_.Clear(activations_, stream));
      MOE_RETURN_IF_ERROR(inputs_.Copy(run_.PassRows(step.pass), activations_, stream));
      return enqueue([this, rows](cuda::Stream native) { return inputs_.Embed(rows, native); });
    case StepKind::kAttention:
      return Attention(step, modules[0].Attention(spec_, run_.form, weights_), stream, enqueue);
    case StepKind::kDense:
      return enqueue([rows, w = staged_mlps()](cuda::Stream native) { return Dense(rows, w, native); });
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
      return enqueue([rows, w = staged_mlps().dense](cuda::Stream native) { return AddSharedExpert(rows, w, native); });
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
  if (stripe.position > rows.first_token) {
    MOE_RETURN_IF_ERROR(LoadLatents(step.layer, {rows.first_token, stripe.position}, latents, stream));
  }
  MOE_RETURN_IF_ERROR(enqueue([rows, w](cuda::Stream native) { return ProjectDown(rows, w, native); }));
  // Earlier parts from the first token that a row sees on.
  const int64_t first_seen = w.window == 0 ? 0 : std::max<int64_t>(0, stripe.position + 1 - w.window);
  const int64_t first_part = std::min(first_seen / a.part_tokens * a.part_tokens, rows.first_token);
  int64_t loaded = -1;  // the part whose latents are on the device
  for (int64_t head = 0; head < spec_.num_heads; head += HeadsTogether(spec_)) {
    const IndexRange heads{head, std::min(head + HeadsTogether(spec_), spec_.num_heads)};
    MOE_RETURN_IF_ERROR(
        enqueue([rows, w, heads](cuda::Stream native) { return ProjectQueries(rows, w, heads, native); }));
    for (int64_t token = first_part; token < rows.first_token; token += a.part_tokens) {
      const IndexRange tokens{token, std::min(token + a.part_tokens, rows.first_token)};
      if (loaded != token) MOE_RETURN_IF_ERROR(LoadLatents(step.layer, tokens, a.earlier, stream));
      loaded = token;
      const KvPart part{a.earlier, tokens.begin, tokens.size(), /*is_first=*/token == first_part,
                        /*is_last=*/false};
      MOE_RETURN_IF_ERROR(
          enqueue([rows, w, heads, part](cuda::Stream native) { return Attend(rows, w, heads, part, native); }));
    }
    const KvPart own{latents, rows.first_token, stripe.end() - rows.first_token,
                     /*is_first=*/rows.first_token == first_part, /*is_last=*/true};
    MOE_RETURN_IF_ERROR(
        enqueue([rows, w, heads, own](cuda::Stream native) { return Attend(rows, w, heads, own, native); }));
  }
  return enqueue([rows, w](cuda::Stream native) { return AddOutput(rows, w, native); });
}

// One copy, not one a page: each would wait for an expert's that is on the bus. What is gathered for it is not pinned,
// so the stream may read it as late as its turn comes; kept until then, for every part of a layer, it would be as large
// as the prefix.
absl::Status CudaPrefill::LoadLatents(int64_t layer, IndexRange tokens, uint16_t* to, device::Stream& stream) const {
  std::vector<uint16_t> gathered(tokens.size() * spec_.kv_dim());
  run_.pages[run_.rows[0].sequence].ReadRows(layer, tokens, gathered.data());
  const absl::Status copied =
      stream.CopyToDevice(BytesOf(to), BytesOf(gathered.data()), std::ssize(gathered) * kBf16Bytes);
  const absl::Status done = stream.Synchronize();
  return copied.ok() ? done : copied;
}

absl::Status CudaPrefill::Store(const LayerStep& step, device::Stream& stream) {
  const CudaRows rows = RowsOf(step);
  const kv::KvPages& pages = run_.pages[run_.rows[0].sequence];
  const int64_t end = rows.stripes[0].end();
  if (pages.geometry().kv_heads > 0) {  // packed: the host takes the rows apart
    const IndexRange stored{rows.stripes[0].position, end};
    std::vector<uint16_t> entries(stored.size() * spec_.kv_dim());
    const absl::Status copied = stream.CopyToHost(
        BytesOf(entries.data()), BytesOf(LatentsOf(step) + (stored.begin - rows.first_token) * spec_.kv_dim()),
        std::ssize(entries) * kBf16Bytes);
    const absl::Status done = stream.Synchronize();
    if (!copied.ok() || !done.ok()) return copied.ok() ? done : copied;
    pages.StoreRows(step.layer, stored, entries.data());
    return absl::OkStatus();
  }
  for (int64_t begin = rows.stripes[0].position; begin < end;) {
    const int64_t block_end = std::min(RoundUp(begin + 1, kv::kPageTokens), end);
    MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(pages.Token(step.layer, begin)),
                                          BytesOf(LatentsOf(step) + (begin - rows.first_token) * spec_.kv_dim()),
                                          (block_end - begin) * spec_.kv_dim() * kBf16Bytes));
    begin = block_end;
  }
  return absl::OkStatus();
}

absl::Status CudaPrefill::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const int64_t first = run_.PassRows(run_.passes - 1).begin;
  return results_.Logits(spec_, [&](int64_t row, std::span<const float> logits) { on_logits(first + row, logits); });
}

}  // namespace moestro::engine
