#include "common/engine/cuda/cuda_decode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status.h"
#include "common/device/pinned_buffer.h"
#include "common/engine/cuda/attention.h"
#include "common/engine/cuda/feed_forward.h"

namespace moestro::engine {
namespace {

// Pages of the pool that the device has room for, beside the weights and what steps work with: all, or at least as many
// as one sequence can have.
absl::StatusOr<int64_t> CountPlaces(const device::Device& device, const CudaDecodeOptions& options, int64_t pages,
                                    int64_t least, int64_t page_bytes, int64_t weights, int64_t activations) {
  constexpr double kGiB = int64_t{1} << 30;
  constexpr int64_t kSmallArrays = 64 << 20;  // of a step's rows, and what alignment takes: left free if not all fit
  const int64_t free = device.memory_free();
  int64_t rest = std::max<int64_t>(free - weights - activations - options.reserved_bytes, 0);
  if (rest / page_bytes < pages) rest = std::max<int64_t>(rest - kSmallArrays, 0);
  const int64_t places = std::min({pages, rest / page_bytes, options.device_pages == 0 ? pages : options.device_pages});
  if (places >= least) return places;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s has %.2f GiB free; dense weights take %.2f, a step's activations %.2f (--max-chunk-tokens), the KV pages of "
      "the longest sequence %.2f (--kv-tokens)",
      device.name(), static_cast<double>(free) / kGiB, static_cast<double>(weights) / kGiB,
      static_cast<double>(activations) / kGiB, static_cast<double>(least * page_bytes) / kGiB));
}

}  // namespace

struct CudaDecode::LaneState {
  LaneState(CudaActivations&& its_activations, StepRows&& its_inputs, device::Memory its_packed_page,
            device::PinnedBuffer<uint16_t>&& its_entries, device::PinnedBuffer<int32_t>&& its_has_nan,
            device::PinnedBuffer<uint32_t>&& its_flags)
      : activations(std::move(its_activations)),
        inputs(std::move(its_inputs)),
        packed_page(std::move(its_packed_page)),
        entries(std::move(its_entries)),
        has_nan(std::move(its_has_nan)),
        flags(std::move(its_flags)) {}

  CudaActivations activations;
  StepRows inputs;
  device::Memory packed_page;              // of DevicePages::CopyMissingPages; none where pages are rows
  device::PinnedBuffer<uint16_t> entries;  // [num_layers, rows, kv_dim]: what the step adds to the cache
  device::PinnedBuffer<int32_t> has_nan;   // [num_layers]
  device::PinnedBuffer<uint32_t> flags;    // [rows]: `flag` where a row has been handed over
  uint32_t flag = 0;                       // of the last layer with experts: another one in each
  const float* host_sums = nullptr;        // of ReadSums; null: they are copied to the activations
  ExpertIo handed;                         // of HandsOver; null: the lane copies

  // Of the step.
  const model::CheckedBatch* batch = nullptr;  // until the layers are done
  int64_t rows = 0;
  float* residual = nullptr;
  int64_t layer = 0;          // that is being launched: on a GPU launches are made at once
  int64_t normed_layer = -1;  // whose first norm Combine has left in x; -1: none
  struct Sequence {
    kv::KvPages pages;
    IndexRange positions;  // of the step
  };
  std::vector<Sequence> sequences;
  std::vector<uint32_t> places;  // of the sequences' pages
};

// How rows of the experts that the device holds are cut into tiles, and experts into groups, each of one launch: all
// tiles, then where those of each group begin, and where the last ones end.
struct CudaDecode::HotTiles {
  static absl::StatusOr<std::unique_ptr<HotTiles>> Create(device::Device& device, const weights::ModelSpec& spec,
                                                          int64_t max_rows, bool coded) {
    const int64_t max_tiles = max_rows * spec.experts_per_token;  // an expert has one for a row at the least
    const int64_t bytes = Bytes(max_tiles, max_tiles);
    MOE_ASSIGN_OR_RETURN(auto host, device::PinnedBuffer<uint8_t>::Create(device, bytes));
    MOE_ASSIGN_OR_RETURN(device::Memory memory, device.Allocate(bytes, "tiles of cached experts"));
    const int64_t gated_bytes = max_tiles * CudaStride(spec.moe_intermediate_size) * int64_t{sizeof(uint16_t)};
    MOE_ASSIGN_OR_RETURN(device::Memory gated, device.Allocate(gated_bytes, "activations of cached experts"));
    device::Memory codes;
    if (coded) {
      const int64_t code_bytes = max_tiles * cuda::Int8Stride(spec.hidden_size) * int64_t{sizeof(uint16_t)};
      MOE_ASSIGN_OR_RETURN(codes, device.Allocate(code_bytes, "coded inputs of cached experts"));
    }
    std::unique_ptr<HotTiles> tiles(
        new HotTiles{max_tiles, std::move(host), std::move(memory), std::move(gated), std::move(codes)});
    tiles->group_begins.reserve(static_cast<size_t>(max_tiles + 1));
    return tiles;
  }
  static int64_t Bytes(int64_t tiles, int64_t groups) {
    return tiles * int64_t{sizeof(cuda::TokenTile)} + (groups + 1) * int64_t{sizeof(int32_t)};
  }
  static cuda::TokenTile* Tiles(uint8_t* plan) { return reinterpret_cast<cuda::TokenTile*>(plan); }
  int32_t* Begins(uint8_t* plan) const { return reinterpret_cast<int32_t*>(Tiles(plan) + count); }
  size_t groups() const { return group_begins.size() - 1; }
  int64_t bytes() const { return Bytes(count, std::ssize(group_begins) - 1); }

  // Cuts the rows, in host memory.
  void Cut(std::span<const HotExpert> experts) {
    cuda::TokenTile* const tiles = Tiles(host.get());
    count = 0;
    group_begins.clear();
    rows = 0;
    for (const HotExpert& expert : experts) count += CeilDiv(expert.count, int64_t{cuda::kSmallTile});
    MOE_CHECK(count <= max_tiles);
    int32_t* const begins = Begins(host.get());
    int32_t next = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      const HotExpert& expert = experts[i];
      if (i == 0 || expert.loaded != nullptr || i - group_begins.back() == cuda::kMaxMatrices) {
        begins[group_begins.size()] = next;
        group_begins.push_back(i);
      }
      const int64_t end = expert.begin + expert.count;
      rows = std::max(rows, end);
      for (int64_t row = expert.begin; row < end; row += cuda::kSmallTile) {
        tiles[next++] = {static_cast<int32_t>(i), static_cast<int32_t>(row),
                         static_cast<int32_t>(std::min(end - row, int64_t{cuda::kSmallTile}))};
      }
    }
    begins[group_begins.size()] = next;
    group_begins.push_back(experts.size());
  }

  int64_t max_tiles = 0;
  device::PinnedBuffer<uint8_t> host;
  device::Memory memory;
  device::Memory gated;  // BF16 [max_tiles, CudaStride(moe_intermediate_size)]
  device::Memory codes;  // [max_tiles, Int8Stride(hidden_size)]; none where inputs are not coded
  // Of the last cut.
  int64_t count = 0;
  int64_t rows = 0;
  std::vector<size_t> group_begins = {};  // among the experts, and their number
};

CudaDecode::CudaDecode(const device::Device& device, const weights::ModelSpec& spec, const model::ModelWeights& weights,
                       bool coded, DeviceWeights device_weights, device::Memory pages, const kv::KvGeometry& geometry,
                       int64_t places)
    : device_(device),
      spec_(spec),
      host_weights_(weights),
      coded_(coded),
      rope_(spec),
      weights_(std::move(device_weights)),
      pages_(std::move(pages), geometry, places) {}

CudaDecode::~CudaDecode() = default;

absl::StatusOr<std::unique_ptr<CudaDecode>> CudaDecode::Create(device::Device& device, const weights::ModelSpec& spec,
                                                               const model::ModelWeights& weights,
                                                               const CudaDecodeOptions& options) {
  // Measurements take a sequence of max_rows tokens in pages of their own.
  const int64_t own_pages = CeilDiv(options.max_rows, kv::kPageTokens);
  const kv::KvGeometry geometry{
      .num_layers = spec.num_layers, .kv_dim = spec.kv_dim(), .page_count = std::max(options.kv_pages, own_pages)};
  kv::KvGeometry of_pool = geometry;
  of_pool.kv_heads = spec.num_kv_heads;
  const int64_t packed_bytes = of_pool.kv_heads > 0 ? of_pool.page_bytes() : 0;
  const bool coded = TakesCodes(spec, weights, options.int8_activations);
  const int64_t lane_bytes = CudaActivations::Bytes(spec, CudaSizes::OfStep(options.max_rows, coded)) + packed_bytes;
  const int64_t hidden_bytes = options.max_rows * spec.hidden_size * static_cast<int64_t>(sizeof(float));
  const int64_t context_pages = CeilDiv(spec.max_position_embeddings, kv::kPageTokens);
  const int64_t longest = std::max(own_pages, std::min(geometry.page_count, context_pages));
  MOE_ASSIGN_OR_RETURN(
      const int64_t places,
      CountPlaces(device, options, geometry.page_count, longest, geometry.page_bytes(),
                  DeviceWeights::Bytes(spec, weights), kMaxLanes * lane_bytes + hidden_bytes + StepHead::Bytes(spec)));
  MOE_ASSIGN_OR_RETURN(DeviceWeights device_weights, DeviceWeights::Copy(device, spec, weights));
  MOE_ASSIGN_OR_RETURN(device::Memory pages, device.Allocate(places * geometry.page_bytes(), "KV pages"));
  std::unique_ptr<CudaDecode> decode(
      new CudaDecode(device, spec, weights, coded, std::move(device_weights), std::move(pages), geometry, places));

  MOE_ASSIGN_OR_RETURN(decode->residual_, device.Allocate(hidden_bytes, "activations"));
  MOE_ASSIGN_OR_RETURN(StepHead head, StepHead::Create(device, spec));
  decode->head_.emplace(std::move(head));

  const StepRows::Limits limits{
      .rows = options.max_rows,
      .pages = std::max(own_pages, options.max_sequences * std::min(geometry.page_count, context_pages))};
  for (int lane = 0; lane < kMaxLanes; ++lane) {
    MOE_ASSIGN_OR_RETURN(auto activations,
                         CudaActivations::Allocate(device, spec, CudaSizes::OfStep(options.max_rows, coded)));
    MOE_ASSIGN_OR_RETURN(StepRows inputs, StepRows::Create(device, spec, limits));
    device::Memory packed_page;
    if (packed_bytes > 0) {
      MOE_ASSIGN_OR_RETURN(packed_page, device.Allocate(packed_bytes, "a packed KV page"));
    }
    MOE_ASSIGN_OR_RETURN(auto entries, device::PinnedBuffer<uint16_t>::Create(
                                           device, spec.num_layers * options.max_rows * spec.kv_dim()));
    MOE_ASSIGN_OR_RETURN(auto has_nan, device::PinnedBuffer<int32_t>::Create(device, spec.num_layers));
    MOE_ASSIGN_OR_RETURN(auto flags, device::PinnedBuffer<uint32_t>::Create(device, options.max_rows));
    auto state = std::make_unique<LaneState>(std::move(activations), std::move(inputs), std::move(packed_page),
                                             std::move(entries), std::move(has_nan), std::move(flags));
    state->sequences.reserve(static_cast<size_t>(options.max_sequences));
    state->places.reserve(static_cast<size_t>(limits.pages));
    decode->lanes_.push_back(std::move(state));
  }
  if (options.hot_rows > 0) {
    MOE_ASSIGN_OR_RETURN(decode->hot_, HotTiles::Create(device, spec, options.hot_rows, coded));
  }
  return decode;
}

void CudaDecode::Begin(int lane, int64_t first_row, const model::CheckedBatch& batch) {
  LaneState& state = Lane(lane);
  state.batch = &batch;
  state.rows = batch.size();
  state.normed_layer = -1;
  state.residual = reinterpret_cast<float*>(residual_.data()) + first_row * spec_.hidden_size;
  state.sequences.clear();
  pages_.LetGo(lane, /*done=*/false);  // of a measurement, which ends without logits
  for (const model::SequenceRun& run : batch.runs) {
    state.sequences.push_back(
        {batch.pages(run.begin), {batch.rows[run.begin].position, batch.rows[run.end - 1].position + 1}});
  }
}

ExpertIo CudaDecode::expert_io(int lane) const {
  const CudaActivations& a = Lane(lane).activations;
  return {a.x, a.choices, a.sums};
}

bool CudaDecode::ReadSums(int lane, const float* host, int64_t rows) {
  const bool reads = device_.KernelsRead(BytesOf(host), rows * spec_.hidden_size * int64_t{sizeof(float)});
  Lane(lane).host_sums = reads ? host : nullptr;
  return reads;
}

bool CudaDecode::HandsOver(int lane, const ExpertIo& host, int64_t rows) {
  LaneState& state = Lane(lane);
  const auto is_open = [this](const auto* data, int64_t count) {
    return device_.KernelsRead(BytesOf(data), count * static_cast<int64_t>(sizeof(*data)));
  };
  const bool hands_over = is_open(host.x, rows * spec_.hidden_size) &&
                          is_open(host.choices, rows * spec_.experts_per_token) && is_open(state.flags.get(), rows);
  state.handed = hands_over ? host : ExpertIo{};
  return hands_over;
}

bool CudaDecode::IsHandedOver(int lane) {
  const LaneState& state = Lane(lane);
  const std::span<uint32_t> flags(state.flags.get(), static_cast<size_t>(state.rows));
  // The last row's block starts last, so it is likely to be the last one.
  return std::all_of(flags.rbegin(), flags.rend(), [&state](uint32_t& flag) {
    return std::atomic_ref(flag).load(std::memory_order_acquire) == state.flag;
  });
}

absl::Status CudaDecode::Embed(int lane, device::Stream& stream) {
  LaneState& state = Lane(lane);
  const model::CheckedBatch& batch = *state.batch;
  state.places.clear();
  for (const model::SequenceRun& run : batch.runs) {
    MOE_RETURN_IF_ERROR(pages_.Take(lane, batch.pages(run.begin), batch.rows[run.begin].position,
                                    batch.rows[run.end - 1].position + 1, state.packed_page.data(), stream,
                                    state.places));
  }
  MOE_RETURN_IF_ERROR(state.inputs.Upload(spec_, rope_, host_weights_.embedding, batch, state.places, stream));
  return stream.Launch({.name = "embed", .cost = {}, .run = [this, &state](void* native) {
                          return engine::Embed(RowsOf(state), state.inputs.arrays().embeddings, nullptr,
                                               static_cast<cuda::Stream>(native));
                        }});
}

absl::Status CudaDecode::Attend(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  ++state.flag;
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
  const CudaRows rows = RowsOf(state);
  const model::LayerWeights& w = weights_.get().layers[state.layer];
  MOE_RETURN_IF_ERROR(AddDecodeAttention(rows, w.attention, stream));
  if (!spec_.IsMoeLayer(state.layer)) return Dense(rows, w.feed_forward, stream);
  int32_t* const has_nan = state.inputs.arrays().has_nan + state.layer;
  if (state.handed.x == nullptr) {
    return Route(rows, w.feed_forward, state.activations.choices, has_nan, stream);
  }
  cuda::HandOver to_host;
  to_host.to = state.handed.x;
  to_host.flags = state.flags.get();
  to_host.flag = state.flag;
  return Route(rows, w.feed_forward, state.handed.choices, has_nan, stream, to_host);
}

absl::Status CudaDecode::Shared(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  return stream.Launch({.name = "shared expert", .cost = {}, .run = [this, &state](void* native) {
                          const model::MlpWeights& w = weights_.get().layers[state.layer].feed_forward.dense;
                          return RunSharedExpert(RowsOf(state), w, state.activations.shared,
                                                 static_cast<cuda::Stream>(native));
                        }});
}

absl::Status CudaDecode::Combine(int lane, int64_t layer, device::Stream& stream) {
  LaneState& state = Lane(lane);
  state.layer = layer;
  return stream.Launch(
      {.name = "combine", .cost = {}, .run = [this, &state](void* native) { return RunCombine(state, native); }});
}

absl::Status CudaDecode::RunCombine(LaneState& state, void* native) const {
  const std::vector<model::LayerWeights>& layers = weights_.get().layers;
  const int64_t next = state.layer + 1;
  const bool is_last = next == spec_.num_layers;
  if (!is_last) state.normed_layer = next;
  return CombineExperts(RowsOf(state), layers[state.layer].feed_forward.dense, state.activations.shared,
                        state.host_sums != nullptr ? state.host_sums : state.activations.sums,
                        is_last ? nullptr : layers[next].attention.input_norm, static_cast<cuda::Stream>(native));
}

absl::Status CudaDecode::HotExperts(std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                    device::Stream& stream) {
  if (hot_ == nullptr) return DecodeCompute::HotExperts(experts, x, outputs, stream);
  hot_->Cut(experts);
  MOE_RETURN_IF_ERROR(stream.CopyToDevice(hot_->memory.data(), hot_->host.get(), hot_->bytes()));
  // A GPU calls what is launched at once.
  if (coded_) {
    const auto encode = [&](void* native) { return EncodeHot(hot_->rows, x, native); };
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "codes of hot experts", .cost = {}, .run = std::ref(encode)}));
  }
  for (size_t group = 0; group < hot_->groups(); ++group) {
    device::Event* const loaded = experts[hot_->group_begins[group]].loaded;
    if (loaded != nullptr) MOE_RETURN_IF_ERROR(stream.WaitFor(*loaded));
    const auto launch = [&](void* native) { return RunHot(group, experts, x, outputs, native); };
    MOE_RETURN_IF_ERROR(stream.Launch({.name = "hot experts", .cost = {}, .run = std::ref(launch)}));
  }
  return absl::OkStatus();
}

absl::Status CudaDecode::EncodeHot(int64_t rows, const uint16_t* x, void* native) const {
  return LaunchStatus(cuda::LaunchEncodeInt8({.x = x,
                                              .x_stride = CudaStride(spec_.hidden_size),
                                              .cols = spec_.hidden_size,
                                              .out = reinterpret_cast<uint16_t*>(hot_->codes.data()),
                                              .out_stride = cuda::Int8Stride(spec_.hidden_size),
                                              .rows = rows},
                                             static_cast<cuda::Stream>(native)));
}

absl::Status CudaDecode::RunHot(size_t group, std::span<const HotExpert> experts, const uint16_t* x, float* outputs,
                                void* native) const {
  const size_t first = hot_->group_begins[group];
  const auto together = experts.subspan(first, hot_->group_begins[group + 1] - first);
  std::array<model::MlpWeights, cuda::kMaxMatrices> weights;
  std::ranges::transform(together, weights.begin(), &HotExpert::weights);
  const int32_t* const host_begins = hot_->Begins(hot_->host.get());
  const int32_t* const begins = hot_->Begins(hot_->memory.data());
  return RunGroupedMlp(spec_, std::span(weights).first(together.size()),
                       {.matrices = {},
                        .first_group = static_cast<int32_t>(first),
                        .tiles = HotTiles::Tiles(hot_->memory.data()),
                        .first_tile = begins + group,
                        .end_tile = begins + group + 1,
                        .max_tiles = host_begins[group + 1] - host_begins[group],
                        .tile_tokens = cuda::kSmallTile},
                       x, coded_ ? reinterpret_cast<uint16_t*>(hot_->codes.data()) : nullptr,
                       reinterpret_cast<uint16_t*>(hot_->gated.data()), outputs, static_cast<cuda::Stream>(native));
}

CudaRows CudaDecode::RowsOf(const LaneState& state) const {
  const StepArrays& arrays = state.inputs.arrays();
  return {.spec = spec_,
          .activations = state.activations,
          .rows = state.rows,
          .residual = state.residual,
          .cosine = arrays.cosine,
          .sine = arrays.sine,
          .cache = pages_.View(state.layer, arrays.pages),
          .stripes = {{{{0, state.rows}, 0}}},
          .positions = arrays.positions,
          .first_page = arrays.first_page,
          .entries = state.activations.entries + state.layer * state.rows * spec_.kv_dim(),
          .is_normed = state.normed_layer == state.layer};
}

absl::Status CudaDecode::Logits(std::span<const model::EngineRow> rows, device::Stream& stream,
                                absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  const bool one_lane = Lane(0).rows == std::ssize(rows);
  const auto lanes = std::span(lanes_).first(one_lane ? 1 : kMaxLanes);
  for (const auto& state : lanes) {
    MOE_RETURN_IF_ERROR(CheckScores({state->has_nan.get(), static_cast<size_t>(spec_.num_layers)}));
  }
  MOE_RETURN_IF_ERROR(head_->Logits(spec_, weights_.get(), coded_, reinterpret_cast<const float*>(residual_.data()),
                                    rows, /*places=*/{}, stream, on_logits));
  for (const auto& state : lanes) StoreEntries(*state);
  for (int lane = 0; lane < kMaxLanes; ++lane) pages_.LetGo(lane, /*done=*/lane < std::ssize(lanes));
  return absl::OkStatus();
}

void CudaDecode::StoreEntries(const LaneState& state) {
  const uint16_t* entries = state.entries.get();
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    for (const LaneState::Sequence& sequence : state.sequences) {
      sequence.pages.StoreRows(layer, sequence.positions, entries);
      entries += sequence.positions.size() * spec_.kv_dim();
    }
  }
  for (const LaneState::Sequence& sequence : state.sequences) {
    pages_.MarkResident(sequence.pages.lease(), sequence.positions.end);
  }
}

}  // namespace moestro::engine
