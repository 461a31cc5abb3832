#include "common/engine/cuda/cuda_rank_kernels.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/kernels/cuda/routing.h"

namespace moestro::engine {
namespace {

static_assert(kMaxRanksOfPrompt <= cuda::kMaxParts);

template <typename Work>
device::Kernel MakeKernel(const char* name, Work work) {
  return {.name = name, .cost = {}, .run = [work = std::move(work)](void* native) {
            return work(static_cast<cuda::Stream>(native));
          }};
}

}  // namespace

CudaSizes CudaRankKernels::Sizes(const RankShare& share) const {
  CudaSizes sizes = CudaSizes::OfShare(share, coded_, fp8_inputs_);
  sizes.most_tile_rows = least_tile_rows_;
  return sizes;
}

int64_t CudaRankKernels::ActivationBytes(const RankShare& share) const {
  return CudaActivations::Bytes(spec_, Sizes(share));
}

absl::Status CudaRankKernels::Begin(const RankShare& share) {
  MOE_RETURN_IF_ERROR(CheckForm(share.form));
  if (std::ranges::count_if(share.rows, &model::EngineRow::needs_logits) > model::kLogitRows) {
    return absl::InvalidArgumentError(absl::StrFormat("more than %d rows want logits", model::kLogitRows));
  }
  share_ = share;
  const auto& stripes = share.stripes;
  int64_t row = 0;
  for (size_t i = 0; i < stripes.size(); ++i) {
    stripes_[i] = {{row, row + stripes[i].size()}, stripes[i].begin};
    row = stripes_[i].rows.end;
  }
  inputs_.Begin(share.rows, device_);
  results_.Begin(spec_, share.rows);
  const CudaSizes sizes = CudaActivations::WithSpare(spec_, Sizes(share), /*earlier_tokens=*/0, share.spare_bytes);
  MOE_ASSIGN_OR_RETURN(activations_, CudaActivations::Allocate(device_, spec_, sizes));
  MOE_ASSIGN_OR_RETURN(copies_, device_.NewStream("inputs"));
  MOE_RETURN_IF_ERROR(results_.Clear(activations_, *copies_));
  if (share.own_rows() > 0) MOE_RETURN_IF_ERROR(inputs_.Copy({0, share.own_rows()}, activations_, *copies_));
  return copies_->Synchronize();
}

void CudaRankKernels::End() {
  copies_.reset();
  activations_ = {};
}

CudaRows CudaRankKernels::Rows(uint16_t* kv) const {
  return {.spec = spec_,
          .activations = activations_,
          .rows = share_.own_rows(),
          .residual = activations_.residual,
          .cosine = activations_.cosine,
          .sine = activations_.sine,
          .cache = ContiguousCache(spec_, kv),
          .stripes = stripes_};
}

template <typename Work>
device::Kernel CudaRankKernels::OfRows(const char* name, Work work) const {
  return MakeKernel(name, [has_rows = share_.own_rows() > 0, work = std::move(work)](cuda::Stream stream) {
    return has_rows ? work(stream) : absl::OkStatus();
  });
}

device::Kernel CudaRankKernels::Embed() {
  return OfRows("embed", [this, rows = Rows()](cuda::Stream stream) { return inputs_.Embed(rows, stream); });
}

device::Kernel CudaRankKernels::Dense(const StagedModule& dense) {
  return OfRows("dense", [rows = Rows(), w = dense.FeedForward(spec_, weights_)](cuda::Stream stream) {
    return engine::Dense(rows, w, stream);
  });
}

device::Kernel CudaRankKernels::SharedExpert(const StagedModule& router) {
  return OfRows("shared expert", [rows = Rows(), w = router.FeedForward(spec_, weights_).dense](cuda::Stream stream) {
    return RunSharedExpert(rows, w, rows.activations.sums, stream);
  });
}

device::Kernel CudaRankKernels::Head(const StagedModule& slice) {
  return OfRows("head", [this, rows = Rows(), norm = slice.FinalNorm(weights_), head = slice.Head(weights_)](
                            cuda::Stream stream) { return results_.LaunchHead(rows, norm, head, stream); });
}

absl::Status CudaRankKernels::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(results_.Fetch(activations_, *copies_));
  MOE_RETURN_IF_ERROR(copies_->Synchronize());
  return results_.Logits(spec_, on_logits);
}

device::Kernel CudaRankKernels::ProjectKv(const StagedModule& attention, uint16_t* kv) {
  return OfRows("project keys and values", [rows = Rows(kv), w = attention.Attention(spec_, share_.form, weights_)](
                                               cuda::Stream stream) { return ProjectDown(rows, w, stream); });
}

int64_t CudaRankKernels::attention_tiles() const {
  return share_.own_rows() == 0 ? 0 : CeilDiv(spec_.num_heads, HeadsTogether(spec_));
}

IndexRange CudaRankKernels::Heads(int64_t tile) const {
  return {tile * HeadsTogether(spec_), std::min((tile + 1) * HeadsTogether(spec_), spec_.num_heads)};
}

device::Kernel CudaRankKernels::BeginAttention(const StagedModule& attention, int64_t tile) {
  has_parts_ = false;
  return OfRows("queries", [rows = Rows(), w = attention.Attention(spec_, share_.form, weights_), heads = Heads(tile)](
                               cuda::Stream stream) { return ProjectQueries(rows, w, heads, stream); });
}

std::vector<KvPart> CudaRankKernels::PartsOf(const uint16_t* kv, std::span<const IndexRange> blocks) {
  const int64_t seen = std::ranges::max(stripes_, {}, &CudaStripe::end).end();
  std::vector<KvPart> parts;
  for (const IndexRange& range : blocks) {
    const int64_t end = std::min(range.end * kv::kPageTokens, seen);
    for (int64_t first = range.begin * kv::kPageTokens; first < end; first += activations_.part_tokens) {
      parts.push_back({.latents = kv + first * spec_.kv_dim(),
                       .first_token = first,
                       .tokens = std::min(activations_.part_tokens, end - first),
                       .is_first = !std::exchange(has_parts_, true)});
    }
  }
  return parts;
}

device::Kernel CudaRankKernels::AttendTo(const StagedModule& attention, int64_t tile, const uint16_t* kv,
                                         std::vector<IndexRange> blocks) {
  return OfRows("attention",
                [rows = Rows(), w = attention.Attention(spec_, share_.form, weights_), heads = Heads(tile),
                 parts = PartsOf(kv, blocks)](cuda::Stream stream) -> absl::Status {
                  for (const KvPart& part : parts) MOE_RETURN_IF_ERROR(Attend(rows, w, heads, part, stream));
                  return absl::OkStatus();
                });
}

device::Kernel CudaRankKernels::FinishAttention(const StagedModule& attention, int64_t tile) {
  return OfRows("attended",
                [rows = Rows(), w = attention.Attention(spec_, share_.form, weights_), heads = Heads(tile),
                 is_last = tile + 1 == attention_tiles()](cuda::Stream stream) -> absl::Status {
                  MOE_RETURN_IF_ERROR(FinishHeads(rows, w, heads, stream));
                  return is_last ? AddOutput(rows, w, rows.activations.attn_out, stream) : absl::OkStatus();
                });
}

device::Kernel CudaRankKernels::Route(const StagedModule& router, uint16_t* x, model::ExpertChoice* choices) {
  return OfRows("route",
                [rows = Rows(), w = router.FeedForward(spec_, weights_), x, choices,
                 has_nan = activations_.has_nan + router.module->layer](cuda::Stream stream) -> absl::Status {
                  MOE_RETURN_IF_ERROR(engine::Route(rows, w, choices, has_nan, stream));
                  const int64_t elements = rows.rows * rows.spec.hidden_size;
                  return LaunchStatus(cuda::LaunchCopy(rows.activations.x,
                                                       elements * static_cast<int64_t>(sizeof(uint16_t)), x, stream));
                });
}

device::Kernel CudaRankKernels::Clear(std::span<float> sums) {
  return MakeKernel("clear", [sums](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchSumParts({.count = 0, .n = std::ssize(sums), .out = sums.data()}, stream));
  });
}

device::Kernel CudaRankKernels::SortRouted() const {
  return MakeKernel("sort",
                    [rows = Rows(), routed = routed_](cuda::Stream stream) { return PlanRows(rows, routed, stream); });
}

device::Kernel CudaRankKernels::Sort(std::span<const model::ExpertChoice> choices, int64_t per_row) {
  routed_ = RoutedRows::Of(choices.data(), std::ssize(choices) / per_row, per_row);
  return SortRouted();
}

device::Kernel CudaRankKernels::SortPairs(std::span<const int32_t> experts) {
  routed_ = {.rows = std::ssize(experts), .chosen = 1, .ids = experts.data()};
  return SortRouted();
}

device::Kernel CudaRankKernels::Experts(std::span<const StagedModule> experts, const uint16_t* x, float* sums) {
  RoutedRows routed = routed_;
  routed.x = x;
  routed.sums = sums;
  return MakeKernel(
      "experts", [rows = Rows(), routed, weights = StagedExperts(weights_, experts), first = experts[0].module->index](
                     cuda::Stream stream) { return engine::Experts(rows, routed, weights, first, stream); });
}

device::Kernel CudaRankKernels::AddExperts(const StagedModule& router, std::vector<float*> parts) {
  cuda::SumPartsArgs args{.count = std::ssize(parts), .n = share_.own_rows() * spec_.hidden_size, .out = parts[0]};
  std::ranges::copy(parts, args.parts);
  return OfRows(
      "add up",
      [rows = Rows(), w = router.FeedForward(spec_, weights_).dense, args](cuda::Stream stream) -> absl::Status {
        if (args.count > 1) MOE_RETURN_IF_ERROR(LaunchStatus(cuda::LaunchSumParts(args, stream)));
        return CombineExperts(rows, w, rows.activations.sums, args.out, /*next_norm=*/nullptr, stream);
      });
}

device::Kernel CudaRankKernels::CountPairs(const model::ExpertChoice* choices) {
  return OfRows("count", [this, choices](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchPlanExperts(&choices->expert, kChoiceStride, share_.own_rows(),
                                                spec_.experts_per_token, spec_.num_experts, activations_.pairs,
                                                stream));
  });
}

absl::StatusOr<PairLists> CudaRankKernels::Pairs() const {
  PairLists lists{std::vector<int64_t>(static_cast<size_t>(share_.ranks())), 0};
  if (share_.own_rows() == 0) return lists;
  std::vector<int32_t> begin(static_cast<size_t>(spec_.num_experts + 1));  // of each expert's pairs
  MOE_RETURN_IF_ERROR(copies_->CopyToHost(BytesOf(begin.data()), BytesOf(activations_.pairs.begin),
                                          std::ssize(begin) * static_cast<int64_t>(sizeof(int32_t))));
  MOE_RETURN_IF_ERROR(copies_->Synchronize());
  for (int rank = 0; rank < share_.ranks(); ++rank) {
    const IndexRange experts = share_.Experts(spec_, rank);
    lists.counts[static_cast<size_t>(rank)] =
        begin[static_cast<size_t>(experts.end)] - begin[static_cast<size_t>(experts.begin)];
  }
  lists.total = std::accumulate(lists.counts.begin(), lists.counts.end(), int64_t{0});
  return lists;
}

// By expert, then by row: so by rank, too.
device::Kernel CudaRankKernels::Pack(const uint16_t* x, const model::ExpertChoice* choices, uint16_t* pair_x,
                                     int32_t* pair_experts) {
  return OfRows("pack", [this, x, choices, pair_x, pair_experts](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchSpreadRows({.x = x,
                                                .width = spec_.hidden_size,
                                                .ids = &choices->expert,
                                                .stride = kChoiceStride,
                                                .routed_of = activations_.pairs.routed_of,
                                                .rows = share_.own_rows(),
                                                .chosen = spec_.experts_per_token,
                                                .out = pair_x,
                                                .out_ids = pair_experts},
                                               stream));
  });
}

device::Kernel CudaRankKernels::CombinePairs(const model::ExpertChoice* choices, const float* sums, float* totals) {
  return OfRows("weigh", [this, choices, sums, totals](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchCombine({.expert_out = sums,
                                             .ids = &choices->expert,
                                             .weights = &choices->weight,
                                             .stride = kChoiceStride,
                                             .routed_of = activations_.pairs.routed_of,
                                             .first = 0,
                                             .end = spec_.num_experts,
                                             .rows = share_.own_rows(),
                                             .chosen = spec_.experts_per_token,
                                             .hidden = spec_.hidden_size,
                                             .sums = totals},
                                            stream));
  });
}

device::Kernel CudaRankKernels::Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return MakeKernel("copy",
                    [=](cuda::Stream stream) { return LaunchStatus(cuda::LaunchCopy(from, bytes, to, stream)); });
}

}  // namespace moestro::engine
