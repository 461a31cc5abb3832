#include "services/prefill/distributed/cuda/cuda_rank_kernels.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/collective/shared/region.h"
#include "common/kernels/cuda/routing.h"
#include "services/prefill/distributed/traffic.h"
#include "services/prefill/stream/cuda/bytes.h"
#include "services/prefill/stream/cuda/cuda_compute.h"

namespace moestro {
namespace {

static_assert(collective::kMaxRanks <= cuda::kMaxParts);
static_assert(sizeof(ExpertChoice) == 2 * sizeof(int32_t));
constexpr int64_t kChoiceStride = 2;  // from an ExpertChoice's number to the next one's

template <typename Work>
device::Kernel MakeKernel(const char* name, Work work) {
  return {.name = name, .cost = {}, .run = [work = std::move(work)](void* native) {
            return work(static_cast<cuda::Stream>(native));
          }};
}

CudaSizes SizesOf(const RankRun& run) {
  int64_t blocks = 0;  // the most that a rank has: parts of others' are as long as its own
  for (int rank = 0; rank < run.ranks(); ++rank) {
    int64_t own = 0;
    for (const IndexRange& stripe : run.split->Stripes(rank)) own += BlocksOf(stripe).size();
    blocks = std::max(blocks, own);
  }
  return {.rows = run.own_rows(), .expert_rows = run.all_rows(), .part_tokens = blocks * kPageTokens, .alone = false};
}

}  // namespace

absl::Status CudaRankKernels::CheckSupported(const ModelSpec& spec) {
  MOE_RETURN_IF_ERROR(CudaCompute::CheckSupported(spec));
  if (CudaStride(spec.hidden_size) == spec.hidden_size) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "GPUs exchange rows of a multiple of 8 numbers, not of %d: this model's prompts are for one of them",
      spec.hidden_size));
}

int64_t CudaRankKernels::ActivationBytes(const RankRun& run) const {
  return CudaActivations::Bytes(spec_, SizesOf(run));
}

absl::Status CudaRankKernels::Begin(const RankRun& run) {
  if (std::ranges::count_if(run.rows, &EngineRow::wants_logits) > kLogitRows) {
    return absl::InvalidArgumentError(absl::StrFormat("more than %d rows want logits", kLogitRows));
  }
  run_ = run;
  const auto stripes = run.split->Stripes(run.rank);
  int64_t row = 0;
  for (size_t i = 0; i < stripes.size(); ++i) {
    stripes_[i] = {{row, row + stripes[i].size()}, stripes[i].begin};
    row = stripes_[i].rows.end;
  }
  inputs_.Begin(run.rows);
  results_.Begin(spec_, run.rows);
  MOE_ASSIGN_OR_RETURN(activations_, CudaActivations::Allocate(device_, spec_, SizesOf(run)));
  MOE_ASSIGN_OR_RETURN(copies_, device_.NewStream("inputs"));
  MOE_RETURN_IF_ERROR(results_.Clear(activations_, *copies_));
  if (run.own_rows() > 0) MOE_RETURN_IF_ERROR(inputs_.Copy({0, run.own_rows()}, activations_, *copies_));
  return copies_->Synchronize();
}

void CudaRankKernels::End() {
  copies_.reset();
  activations_ = {};
}

CudaPass CudaRankKernels::PassOf(uint16_t* kv) const {
  return {.spec = spec_,
          .activations = activations_,
          .rows = run_.own_rows(),
          .stripes = stripes_,
          .first_token = 0,
          .latents = kv};
}

template <typename Work>
device::Kernel CudaRankKernels::OfRows(const char* name, Work work) const {
  return MakeKernel(name, [has_rows = run_.own_rows() > 0, work = std::move(work)](cuda::Stream stream) {
    return has_rows ? work(stream) : absl::OkStatus();
  });
}

device::Kernel CudaRankKernels::Plain(const Step& step, std::span<const StagedModule> modules) {
  const char* const name = StepName(step.kind);
  const CudaPass pass = PassOf();
  if (step.kind == StepKind::kEmbed) {
    return OfRows(name, [pass](cuda::Stream stream) { return Embed(pass, stream); });
  }
  const StagedModule module = modules[0];
  if (step.kind == StepKind::kHead) {
    return OfRows(name, [this, pass, module](cuda::Stream stream) {
      return results_.LaunchHead(pass, weights_, module, stream);
    });
  }
  auto weights = Staged(spec_, weights_.layers[step.layer].feed_forward, module.module->image, module.base);
  return OfRows(name, [pass, is_dense = step.kind == StepKind::kDense, w = std::move(weights)](cuda::Stream stream) {
    return is_dense ? Dense(pass, w, stream) : AddSharedExpert(pass, w.always, stream);
  });
}

absl::Status CudaRankKernels::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  MOE_RETURN_IF_ERROR(results_.Fetch(activations_, *copies_));
  MOE_RETURN_IF_ERROR(copies_->Synchronize());
  return results_.Logits(spec_, on_logits);
}

AttentionWeights CudaRankKernels::AttentionOf(const Step& step, const StagedModule& attention) const {
  return Staged(spec_, run_.form, weights_.layers[step.layer].attention, attention.module->image, attention.base);
}

device::Kernel CudaRankKernels::ProjectKv(const Step& step, const StagedModule& attention, uint16_t* kv) {
  return OfRows("project keys and values", [pass = PassOf(kv), w = AttentionOf(step, attention)](cuda::Stream stream) {
    return ProjectDown(pass, w, stream);
  });
}

int64_t CudaRankKernels::attention_tiles() const {
  return run_.own_rows() == 0 ? 0 : CeilDiv(spec_.num_heads, HeadsTogether(spec_));
}

IndexRange CudaRankKernels::Heads(int64_t tile) const {
  return {tile * HeadsTogether(spec_), std::min((tile + 1) * HeadsTogether(spec_), spec_.num_heads)};
}

device::Kernel CudaRankKernels::BeginAttention(const Step& step, const StagedModule& attention, int64_t tile) {
  has_parts_ = false;
  return OfRows("queries", [pass = PassOf(), w = AttentionOf(step, attention), heads = Heads(tile)](
                               cuda::Stream stream) { return ProjectQueries(pass, w, heads, stream); });
}

std::vector<KvPart> CudaRankKernels::PartsOf(const uint16_t* kv, std::span<const IndexRange> blocks) {
  const int64_t seen = std::ranges::max(stripes_, {}, &CudaStripe::end).end();
  std::vector<KvPart> parts;
  for (const IndexRange& range : blocks) {
    const int64_t end = std::min(range.end * kPageTokens, seen);
    for (int64_t first = range.begin * kPageTokens; first < end; first += activations_.part_tokens) {
      parts.push_back({.latents = kv + first * spec_.kv_dim(),
                       .first_token = first,
                       .tokens = std::min(activations_.part_tokens, end - first),
                       .is_first = !std::exchange(has_parts_, true)});
    }
  }
  return parts;
}

device::Kernel CudaRankKernels::AttendTo(const Step& step, const StagedModule& attention, int64_t tile,
                                         const uint16_t* kv, std::vector<IndexRange> blocks) {
  return OfRows("attention",
                [pass = PassOf(), w = AttentionOf(step, attention), heads = Heads(tile),
                 parts = PartsOf(kv, blocks)](cuda::Stream stream) -> absl::Status {
                  for (const KvPart& part : parts) MOE_RETURN_IF_ERROR(Attend(pass, w, heads, part, stream));
                  return absl::OkStatus();
                });
}

device::Kernel CudaRankKernels::FinishAttention(const Step& step, const StagedModule& attention, int64_t tile) {
  return OfRows("attended",
                [pass = PassOf(), w = AttentionOf(step, attention), heads = Heads(tile),
                 is_last = tile + 1 == attention_tiles()](cuda::Stream stream) -> absl::Status {
                  MOE_RETURN_IF_ERROR(FinishHeads(pass, heads, stream));
                  return is_last ? AddOutput(pass, w, stream) : absl::OkStatus();
                });
}

device::Kernel CudaRankKernels::Route(const Step& step, const StagedModule& router, uint16_t* x,
                                      ExpertChoice* choices) {
  auto weights = Staged(spec_, weights_.layers[step.layer].feed_forward, router.module->image, router.base);
  return OfRows(
      StepName(step.kind),
      [pass = PassOf(), w = std::move(weights), x, choices,
       has_nan = activations_.has_nan + step.layer](cuda::Stream stream) -> absl::Status {
        MOE_RETURN_IF_ERROR(RouteRows(pass, w, {&choices->expert, &choices->weight, kChoiceStride}, has_nan, stream));
        const int64_t numbers = pass.rows * pass.spec.hidden_size;
        return LaunchStatus(cuda::LaunchCopy(pass.activations.normed_narrow,
                                             numbers * static_cast<int64_t>(sizeof(uint16_t)), x, stream));
      });
}

device::Kernel CudaRankKernels::SortRouted(std::span<float> sums) const {
  return MakeKernel("sort", [pass = PassOf(), routed = routed_, sums](cuda::Stream stream) -> absl::Status {
    MOE_RETURN_IF_ERROR(
        LaunchStatus(cuda::LaunchSumParts({.count = 0, .n = std::ssize(sums), .out = sums.data()}, stream)));
    return PlanRows(pass, routed, stream);
  });
}

device::Kernel CudaRankKernels::Sort(std::span<const ExpertChoice> choices, int64_t per_row, std::span<float> sums) {
  routed_ = {.rows = std::ssize(choices) / per_row,
             .chosen = per_row,
             .ids = &choices.data()->expert,
             .weights = &choices.data()->weight,
             .stride = kChoiceStride};
  return SortRouted(sums);
}

device::Kernel CudaRankKernels::SortPairs(std::span<const int32_t> experts, std::span<float> sums) {
  routed_ = {.rows = std::ssize(experts), .chosen = 1, .ids = experts.data()};
  return SortRouted(sums);
}

device::Kernel CudaRankKernels::Experts(const Step& step, std::span<const StagedModule> experts, const uint16_t* x,
                                        float* sums) {
  std::vector<MlpWeights> weights;
  for (const StagedModule& m : experts) {
    const MlpWeights& expert = weights_.layers[step.layer].feed_forward.experts[m.module->index];
    weights.push_back(Staged(expert, m.module->image, m.base));
  }
  RoutedRows routed = routed_;
  routed.x = x;
  routed.sums = sums;
  return MakeKernel("experts",
                    [pass = PassOf(), routed, weights = std::move(weights), first = experts[0].module->index](
                        cuda::Stream stream) { return moestro::Experts(pass, routed, weights, first, stream); });
}

device::Kernel CudaRankKernels::AddUp(std::vector<const float*> parts) {
  cuda::SumPartsArgs args{
      .count = std::ssize(parts), .n = run_.own_rows() * spec_.hidden_size, .out = activations_.sums};
  std::ranges::copy(parts, args.parts);
  return MakeKernel("add up", [args](cuda::Stream stream) { return LaunchStatus(cuda::LaunchSumParts(args, stream)); });
}

device::Kernel CudaRankKernels::CountPairs(const ExpertChoice* choices) {
  return OfRows("count", [this, choices](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchPlanExperts(&choices->expert, kChoiceStride, run_.own_rows(),
                                                spec_.experts_per_token, spec_.num_experts, activations_.pairs,
                                                stream));
  });
}

absl::StatusOr<PairLists> CudaRankKernels::Pairs() const {
  PairLists lists{std::vector<int64_t>(static_cast<size_t>(run_.ranks())), 0};
  if (run_.own_rows() == 0) return lists;
  std::vector<int32_t> begin(static_cast<size_t>(spec_.num_experts + 1));  // of each expert's pairs
  MOE_RETURN_IF_ERROR(copies_->CopyToHost(BytesOf(begin.data()), BytesOf(activations_.pairs.begin),
                                          std::ssize(begin) * static_cast<int64_t>(sizeof(int32_t))));
  MOE_RETURN_IF_ERROR(copies_->Synchronize());
  for (int rank = 0; rank < run_.ranks(); ++rank) {
    const IndexRange experts = RankExperts(spec_, rank, run_.ranks());
    lists.counts[static_cast<size_t>(rank)] =
        begin[static_cast<size_t>(experts.end)] - begin[static_cast<size_t>(experts.begin)];
  }
  lists.total = std::accumulate(lists.counts.begin(), lists.counts.end(), int64_t{0});
  return lists;
}

// By expert, then by row: so by rank, too.
device::Kernel CudaRankKernels::Pack(const uint16_t* x, const ExpertChoice* choices, uint16_t* pair_x,
                                     int32_t* pair_experts) {
  return OfRows("pack", [this, x, choices, pair_x, pair_experts](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchSpreadRows({.x = x,
                                                .width = spec_.hidden_size,
                                                .ids = &choices->expert,
                                                .stride = kChoiceStride,
                                                .routed_of = activations_.pairs.routed_of,
                                                .rows = run_.own_rows(),
                                                .chosen = spec_.experts_per_token,
                                                .out = pair_x,
                                                .out_ids = pair_experts},
                                               stream));
  });
}

device::Kernel CudaRankKernels::WeighPairs(const ExpertChoice* choices, const float* sums) {
  return OfRows("weigh", [this, choices, sums](cuda::Stream stream) {
    return LaunchStatus(cuda::LaunchCombine({.expert_out = sums,
                                             .ids = &choices->expert,
                                             .weights = &choices->weight,
                                             .stride = kChoiceStride,
                                             .routed_of = activations_.pairs.routed_of,
                                             .first = 0,
                                             .end = spec_.num_experts,
                                             .rows = run_.own_rows(),
                                             .chosen = spec_.experts_per_token,
                                             .hidden = spec_.hidden_size,
                                             .sums = activations_.sums},
                                            stream));
  });
}

device::Kernel CudaRankKernels::Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return MakeKernel("copy",
                    [=](cuda::Stream stream) { return LaunchStatus(cuda::LaunchCopy(from, bytes, to, stream)); });
}

}  // namespace moestro
