#include "services/decode/overlap/cuda/cuda_decode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/model/cuda_routing.h"
#include "common/model/head.h"
#include "services/decode/overlap/pinned_buffer.h"

namespace moestro {
namespace {

uint8_t* BytesOf(void* data) { return static_cast<uint8_t*>(data); }

absl::Status CheckMemory(const device::Device& device, int64_t weights, int64_t pages, int64_t activations) {
  constexpr double kGiB = int64_t{1} << 30;
  const int64_t free = device.memory_free();
  if (weights + pages + activations <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s has %.2f GiB free; dense weights take %.2f, the KV pool %.2f (--kv-tokens), a step's activations %.2f "
      "(--max-chunk-tokens)",
      device.name(), static_cast<double>(free) / kGiB, static_cast<double>(weights) / kGiB,
      static_cast<double>(pages) / kGiB, static_cast<double>(activations) / kGiB));
}

}  // namespace

struct CudaDecode::LaneState {
  LaneState(DecodeActivations&& its_activations, StepRows&& its_inputs, PinnedBuffer<uint16_t>&& its_entries,
            PinnedBuffer<int32_t>&& its_has_nan)
      : activations(std::move(its_activations)),
        inputs(std::move(its_inputs)),
        entries(std::move(its_entries)),
        has_nan(std::move(its_has_nan)) {}

  DecodeActivations activations;
  StepRows inputs;
  PinnedBuffer<uint16_t> entries;  // [num_layers, rows, kv_dim]: what the step adds to the cache
  PinnedBuffer<int32_t> has_nan;   // [num_layers]

  // Of the step.
  const CheckedBatch* batch = nullptr;  // until the layers are done
  int64_t rows = 0;
  float* residual = nullptr;
  int64_t layer = 0;                    // that is being launched: on a GPU launches are made at once
  std::vector<uint16_t*> destinations;  // of each row's entry of layer 0, in the pool
  struct Sequence {
    uint64_t lease = 0;
    int64_t tokens = 0;  // after the step
  };
  std::vector<Sequence> sequences;
};

struct CudaDecode::Head {
  device::Memory input;   // BF16 [kLogitRows, hidden]
  device::Memory logits;  // F32 [kLogitRows, vocab_size]
  PinnedBuffer<float> host_logits;
};

absl::Status CudaDecode::CheckSupported(const ModelSpec& spec) {
  const int64_t dim = spec.v_head_dim;
  if (spec.has_grouped_queries() && (dim % 16 != 0 || 2 * dim > cuda::kDecodeMaxKeyDim || spec.hidden_size % 8 != 0)) {
    return absl::UnimplementedError(
        absl::StrFormat("the CUDA kernels decode with heads of up to %d numbers, a multiple of 16, and a hidden_size "
                        "that is a multiple of 8; not with heads of %d, hidden_size %d",
                        cuda::kDecodeMaxKeyDim / 2, dim, spec.hidden_size));
  }
  if (spec.has_grouped_queries()) return CheckCudaRouting(spec);
  if (spec.kv_lora_rank > cuda::kDecodeMaxLatent || spec.kv_lora_rank % 8 != 0 ||
      spec.kv_dim() > cuda::kDecodeMaxKeyDim || spec.kv_dim() % 8 != 0 || spec.qk_nope_head_dim % 4 != 0 ||
      spec.v_head_dim % 4 != 0 || spec.qk_head_dim() % 4 != 0 || spec.hidden_size % 8 != 0) {
    return absl::UnimplementedError(absl::StrFormat(
        "the CUDA kernels decode with latents of up to %d numbers, keys of up to %d, both and hidden_size multiples of "
        "8, heads' of 4; not with %d + %d, hidden_size %d, heads of %d and %d",
        cuda::kDecodeMaxLatent, cuda::kDecodeMaxKeyDim, spec.kv_lora_rank, spec.qk_rope_head_dim, spec.hidden_size,
        spec.qk_head_dim(), spec.v_head_dim));
  }
  return CheckCudaRouting(spec);
}

CudaDecode::CudaDecode(const ModelSpec& spec, const ModelWeights& weights, DeviceWeights device_weights,
                       device::Memory pages, const KvGeometry& geometry)
    : spec_(spec),
      host_weights_(weights),
      rope_(spec),
      weights_(std::move(device_weights)),
      pages_(std::move(pages), geometry) {}

CudaDecode::~CudaDecode() = default;

absl::StatusOr<std::unique_ptr<CudaDecode>> CudaDecode::Create(device::Device& device, const ModelSpec& spec,
                                                               const ModelWeights& weights, const Options& options) {
  // Measurements take a sequence of max_rows tokens in pages of their own.
  const int64_t own_pages = CeilDiv(options.max_rows, kPageTokens);
  const KvGeometry geometry{
      .num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .page_count = std::max(options.kv_pages, own_pages)};
  const int64_t pages_bytes = geometry.page_count * geometry.page_bytes();
  MOE_RETURN_IF_ERROR(CheckMemory(device, DeviceWeights::Bytes(spec, weights), pages_bytes,
                                  kMaxLanes * DecodeActivations::Bytes(spec, options.max_rows)));
  MOE_ASSIGN_OR_RETURN(DeviceWeights device_weights, DeviceWeights::Copy(device, spec, weights));
  MOE_ASSIGN_OR_RETURN(device::Memory pages, device.Allocate(pages_bytes, "KV pages"));
  std::unique_ptr<CudaDecode> decode(
      new CudaDecode(spec, weights, std::move(device_weights), std::move(pages), geometry));

  const int64_t hidden_bytes = options.max_rows * spec.hidden_size * static_cast<int64_t>(sizeof(float));
  MOE_ASSIGN_OR_RETURN(decode->residual_, device.Allocate(hidden_bytes, "activations"));
  MOE_ASSIGN_OR_RETURN(device::Memory input, device.Allocate(kLogitRows * spec.hidden_size * 2, "activations"));
  MOE_ASSIGN_OR_RETURN(device::Memory logits, device.Allocate(kLogitRows * spec.vocab_size * 4, "logits"));
  MOE_ASSIGN_OR_RETURN(auto host_logits, PinnedBuffer<float>::Create(device, kLogitRows * spec.vocab_size));
  decode->head_.reset(new Head{std::move(input), std::move(logits), std::move(host_logits)});

  const int64_t context_pages = CeilDiv(spec.max_position_embeddings, kPageTokens);
  const StepRows::Limits limits{
      .rows = options.max_rows,
      .pages = std::max(own_pages, options.max_sequences * std::min(geometry.page_count, context_pages))};
  for (int lane = 0; lane < kMaxLanes; ++lane) {
    MOE_ASSIGN_OR_RETURN(auto activations, DecodeActivations::Allocate(device, spec, options.max_rows));
    MOE_ASSIGN_OR_RETURN(StepRows inputs, StepRows::Create(device, spec, limits));
    MOE_ASSIGN_OR_RETURN(auto entries,
                         PinnedBuffer<uint16_t>::Create(device, spec.num_layers * options.max_rows * spec.kv_dim()));
    MOE_ASSIGN_OR_RETURN(auto has_nan, PinnedBuffer<int32_t>::Create(device, spec.num_layers));
    auto state =
        std::make_unique<LaneState>(std::move(activations), std::move(inputs), std::move(entries), std::move(has_nan));
    state->destinations.reserve(static_cast<size_t>(options.max_rows));
    state->sequences.reserve(static_cast<size_t>(options.max_sequences));
    decode->lanes_.push_back(std::move(state));
  }
  return decode;
}

void CudaDecode::Begin(int lane, int64_t first_row, const CheckedBatch& batch, MlaForm) {
  LaneState& state = Lane(lane);
  state.batch = &batch;
  state.rows = batch.size();
  state.residual = reinterpret_cast<float*>(residual_.data()) + first_row * spec_.hidden_size;
  state.destinations.clear();
  state.sequences.clear();
  for (const SequenceRun& run : batch.runs) {
    const KvPages& pages = batch.pages(run.begin);
    for (int64_t row = run.begin; row < run.end; ++row) {
      state.destinations.push_back(pages.Token(0, batch.rows[row].position));
    }
    state.sequences.push_back({pages.lease(), batch.rows[run.end - 1].position + 1});
  }
}

HandOver CudaDecode::hand_over(int lane) const {
  const DecodeActivations& a = Lane(lane).activations;
  return {a.x, a.choices, a.sums};
}

absl::Status CudaDecode::Embed(int lane, device::Stream& stream) {
  LaneState& state = Lane(lane);
  const CheckedBatch& batch = *state.batch;
  for (const SequenceRun& run : batch.runs) {
    MOE_RETURN_IF_ERROR(pages_.Bring(batch.pages(run.begin), batch.rows[run.begin].position, stream));
  }
  MOE_RETURN_IF_ERROR(state.inputs.Upload(spec_, rope_, host_weights_.embedding, batch, stream));
  return stream.Launch({.name = "embed", .cost = {}, .run = [this, &state](void* native) {
                          return EmbedTokens(PassOf(state), static_cast<cuda::Stream>(native));
                        }});
}

absl::Status CudaDecode::Attend(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  MOE_RETURN_IF_ERROR(stream.Launch(
      {.name = "attend", .cost = {}, .run = [this, &state](void* native) { return RunAttend(state, native); }}));
  if (layer + 1 < spec_.num_layers) return absl::OkStatus();
  // All that the step adds is there: the lane waits for its last layer anyway.
  MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(state.entries.get()), BytesOf(state.activations.entries),
                                        spec_.num_layers * state.rows * spec_.kv_dim() * int64_t{sizeof(uint16_t)}));
  return stream.CopyToHost(BytesOf(state.has_nan.get()), BytesOf(state.inputs.arrays().has_nan),
                           spec_.num_layers * int64_t{sizeof(int32_t)});
}

absl::Status CudaDecode::RunAttend(const LaneState& state, void* native) const {
  auto* const stream = static_cast<cuda::Stream>(native);
  const DecodePass pass = PassOf(state);
  const LayerWeights& w = weights_.get().layers[state.layer];
  MOE_RETURN_IF_ERROR(AddAttention(pass, w.attention, stream));
  if (!spec_.IsMoeLayer(state.layer)) return AddDense(pass, w.feed_forward, stream);
  return RouteToExperts(pass, w.feed_forward, state.inputs.arrays().has_nan + state.layer, stream);
}

absl::Status CudaDecode::Shared(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  return stream.Launch({.name = "shared expert", .cost = {}, .run = [this, &state](void* native) {
                          const MlpWeights& w = weights_.get().layers[state.layer].feed_forward.always;
                          return RunSharedExpert(PassOf(state), w, static_cast<cuda::Stream>(native));
                        }});
}

absl::Status CudaDecode::Combine(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  return stream.Launch({.name = "combine", .cost = {}, .run = [this, &state](void* native) {
                          const MlpWeights& w = weights_.get().layers[state.layer].feed_forward.always;
                          return AddExperts(PassOf(state), w, static_cast<cuda::Stream>(native));
                        }});
}

DecodePass CudaDecode::PassOf(const LaneState& state) const {
  const StepArrays& arrays = state.inputs.arrays();
  return {.spec = spec_,
          .activations = state.activations,
          .arrays = arrays,
          .pages = pages_.View(state.layer, arrays.pages),
          .entries = state.activations.entries + state.layer * state.rows * spec_.kv_dim(),
          .residual = state.residual,
          .rows = state.rows};
}

absl::Status CudaDecode::Logits(std::span<const EngineRow> rows, device::Stream& stream,
                                absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const bool one_lane = Lane(0).rows == std::ssize(rows);
  const auto lanes = std::span(lanes_).first(one_lane ? 1 : kMaxLanes);
  for (const auto& state : lanes) {
    const std::span has_nan(state->has_nan.get(), static_cast<size_t>(spec_.num_layers));
    if (const auto layer = std::ranges::find(has_nan, 1); layer != has_nan.end()) {
      return absl::InternalError(absl::StrFormat("layer %d: scores of experts are NaN", layer - has_nan.begin()));
    }
  }
  const auto give_logits = [&](std::span<const int64_t> wanted) -> absl::Status {
    MOE_RETURN_IF_ERROR(stream.Launch(
        {.name = "head", .cost = {}, .run = [this, &wanted](void* native) { return RunHead(wanted, native); }}));
    MOE_RETURN_IF_ERROR(stream.CopyToHost(BytesOf(head_->host_logits.get()), head_->logits.data(),
                                          std::ssize(wanted) * spec_.vocab_size * int64_t{sizeof(float)}));
    MOE_RETURN_IF_ERROR(stream.Synchronize());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::span logits(head_->host_logits.get() + static_cast<int64_t>(i) * spec_.vocab_size,
                             static_cast<size_t>(spec_.vocab_size));
      MOE_RETURN_IF_ERROR(FinishRow(rows[static_cast<size_t>(wanted[i])], spec_.token_count, logits));
      on_logits(wanted[i], logits);
    }
    return absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(ForRowsWithLogits(rows, give_logits));
  for (const auto& state : lanes) StoreEntries(*state);
  return absl::OkStatus();
}

absl::Status CudaDecode::RunHead(std::span<const int64_t> wanted, void* native) const {
  auto* const stream = static_cast<cuda::Stream>(native);
  const ModelWeights& w = weights_.get();
  auto* const input = reinterpret_cast<uint16_t*>(head_->input.data());
  for (size_t i = 0; i < wanted.size(); ++i) {
    MOE_RETURN_IF_ERROR(cuda::LaunchStatus(
        cuda::LaunchRmsNorm({.x = reinterpret_cast<const float*>(residual_.data()) + wanted[i] * spec_.hidden_size,
                             .x_stride = spec_.hidden_size,
                             .weight = w.final_norm,
                             .rows = 1,
                             .n = spec_.hidden_size,
                             .eps = static_cast<float>(spec_.rms_norm_eps),
                             .out_bf16 = input + static_cast<int64_t>(i) * spec_.hidden_size,
                             .out_bf16_stride = spec_.hidden_size},
                            stream)));
  }
  return cuda::LaunchStatus(
      cuda::LaunchLinear(cuda::ShapeOf(w.head, input, spec_.hidden_size, head_->logits.data(), spec_.vocab_size),
                         cuda::PointersOf(w.head), std::ssize(wanted), stream));
}

void CudaDecode::StoreEntries(const LaneState& state) {
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    for (int64_t row = 0; row < state.rows; ++row) {
      std::copy_n(state.entries.get() + (layer * state.rows + row) * spec_.kv_dim(), spec_.kv_dim(),
                  state.destinations[static_cast<size_t>(row)] + layer * kPageTokens * spec_.kv_dim());
    }
  }
  for (const LaneState::Sequence& sequence : state.sequences) pages_.Note(sequence.lease, sequence.tokens);
}

}  // namespace moestro
