#include <cuda_runtime.h>

#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/routing.h"

namespace moestro::cuda {
namespace {

constexpr int kWarps = 4;  // in a block of independent warps
constexpr int kPerLane = kMaxExperts / 32;
constexpr float kMinWeightSum = 1e-20f;  // keeps the division defined when every score underflows to zero

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000u); }
constexpr int kNobody = 0x7fffffff;

struct Candidate {
  float value;
  int id;
};
__device__ __forceinline__ bool IsBetter(Candidate a, Candidate b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}
// The best candidate of all lanes, the same in all lanes.
__device__ __forceinline__ Candidate WarpBest(Candidate best) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, best.value, lanes), __shfl_xor_sync(kAllLanes, best.id, lanes)};
    if (IsBetter(other, best)) best = other;
  }
  return best;
}

// A group of one expert counts that expert only.
__device__ __forceinline__ float RankGroup(const float* biased, int size, GroupRank rank) {
  float first = MinusInfinity(), second = MinusInfinity();
  for (int i = 0; i < size; ++i) {
    const float value = biased[i];
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return rank == GroupRank::kLargest || size == 1 ? first : first + second;
}

// The kept groups as bits. Lane g ranks group g.
__device__ __forceinline__ unsigned KeptGroups(const ChooseExpertsArgs& args, const float* biased, int lane) {
  const int groups = static_cast<int>(args.groups), size = static_cast<int>(args.experts / args.groups);
  Candidate mine{MinusInfinity(), kNobody};
  if (lane < groups) mine = {RankGroup(biased + lane * size, size, args.rank), lane};
  unsigned kept = 0;
  for (int i = 0; i < args.kept_groups; ++i) {
    const Candidate best = WarpBest(mine);
    kept |= 1u << best.id;
    if (best.id == lane) mine = {MinusInfinity(), kNobody};
  }
  return kept;
}

struct ChoiceScratch {
  float scores[kMaxExperts];
  float biased[kMaxExperts];
  int ids[kMaxChosen];
  float weights[kMaxChosen];
};

// Writes scores and biased scores of one row to `scratch`; lane l handles experts l, l + 32, ...
__device__ __forceinline__ void ScoreExperts(const ChooseExpertsArgs& args, const float* logits, int lane,
                                             ChoiceScratch& scratch) {
  const int experts = static_cast<int>(args.experts);
  float greatest = MinusInfinity(), sum = 0;
  if (args.score == RouterScore::kSoftmax) {
    for (int e = lane; e < experts; e += 32) greatest = fmaxf(greatest, logits[e]);
    greatest = WarpMax(greatest);
    for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - greatest);
    sum = WarpSum(sum);
  }
  for (int e = lane; e < experts; e += 32) {
    const float score =
        args.score == RouterScore::kSoftmax ? expf(logits[e] - greatest) / sum : 1.0f / (1.0f + expf(-logits[e]));
    float biased = args.bias == nullptr ? score : score + args.bias[e];
    if (biased != biased) {
      atomicMax(args.has_nan, 1);
      biased = MinusInfinity();  // keeps ids valid even if the caller ignores the NaN
    }
    scratch.scores[e] = score;
    scratch.biased[e] = biased;
  }
}

// All lanes of a warp call it.
__device__ __forceinline__ void ChooseForRow(const ChooseExpertsArgs& args, int64_t row, int lane,
                                             ChoiceScratch& scratch) {
  const int experts = static_cast<int>(args.experts), chosen = static_cast<int>(args.chosen);

  ScoreExperts(args, args.logits + row * args.experts, lane, scratch);
  __syncwarp();
  const unsigned kept = args.groups > 1 ? KeptGroups(args, scratch.biased, lane) : 1u;
  const int group_size = static_cast<int>(args.experts / args.groups);

  float values[kPerLane];
  unsigned left = 0;  // the lane's remaining experts, as bits
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    values[i] = MinusInfinity();
    if (e >= experts || (kept >> (e / group_size) & 1) == 0) continue;
    values[i] = scratch.biased[e];
    left |= 1u << i;
  }
  int mine = kNobody;  // lane k keeps the k-th best
  for (int k = 0; k < chosen; ++k) {
    Candidate best{MinusInfinity(), kNobody};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const Candidate candidate{values[i], lane + 32 * i};
      if ((left >> i & 1) != 0 && IsBetter(candidate, best)) best = candidate;
    }
    best = WarpBest(best);
    if (best.id % 32 == lane) left &= ~(1u << (best.id / 32));
    if (k == lane) mine = best.id;
  }

  int rank = 0;  // rank of the lane's choice in ascending id
  for (int k = 0; k < chosen; ++k) rank += __shfl_sync(kAllLanes, mine, k) < mine ? 1 : 0;
  if (lane < chosen) {
    scratch.ids[rank] = mine;
    scratch.weights[rank] = scratch.scores[mine];
  }
  __syncwarp();
  float sum = 0;
  for (int k = 0; k < chosen; ++k) sum += scratch.weights[k];
  const float divisor = args.normalise ? sum + kMinWeightSum : 1.0f;
  if (lane < chosen) {
    const int64_t at = (row * chosen + lane) * args.stride;
    args.ids[at] = scratch.ids[lane];
    args.weights[at] = scratch.weights[lane] / divisor * args.scale;
  }
}

// One warp per row.
__global__ void __launch_bounds__(32 * kWarps) ChooseExpertsKernel(ChooseExpertsArgs args) {
  BeginKernel();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp;
  if (row < args.rows) ChooseForRow(args, row, lane, reinterpret_cast<ChoiceScratch*>(DynamicShared())[warp]);
}

// One block per row. The first warp chooses, while the others copy x to the host.
__global__ void __launch_bounds__(32 * kWarps) ChooseAndHandOverKernel(ChooseExpertsArgs args) {
  BeginKernel();
  constexpr int kCopiers = 32 * (kWarps - 1);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const HandOver& to_host = args.hand_over;
  if (thread < 32) {
    ChooseForRow(args, row, thread, *reinterpret_cast<ChoiceScratch*>(DynamicShared()));
  } else {
    const int64_t chunks = to_host.width / 8;
    const uint4* const from = reinterpret_cast<const uint4*>(to_host.x) + row * chunks;
    uint4* const to = reinterpret_cast<uint4*>(to_host.to) + row * chunks;
#pragma unroll 4
    for (int64_t i = thread - 32; i < chunks; i += kCopiers) to[i] = from[i];
  }
  __syncthreads();
  if (thread == 0) StoreFlag(to_host.flags + row, to_host.flag);
}

// ---- Sorting rows by expert: one warp per expert scans all choices, twice

// begin[e] = number of rows that chose expert e
__global__ void __launch_bounds__(32 * kWarps)
    CountKernel(const int32_t* ids, int64_t stride, int64_t choices, int64_t experts, int32_t* begin) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t expert = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (expert >= experts) return;
  int count = 0;
  for (int64_t i = 0; i < choices; i += 32) {
    count += __popc(__ballot_sync(kAllLanes, i + lane < choices && ids[(i + lane) * stride] == expert));
  }
  if (lane == 0) begin[expert] = count;
}

struct PlanSums {
  int rows, small, large;
};
__device__ __forceinline__ PlanSums Add(PlanSums a, PlanSums b) {
  return {a.rows + b.rows, a.small + b.small, a.large + b.large};
}

// From counts to offsets and tiles: one block, one thread per expert.
__global__ void __launch_bounds__(kMaxExperts) PlanKernel(int experts, RoutingPlan plan) {
  BeginKernel();
  PlanSums* const sums = reinterpret_cast<PlanSums*>(DynamicShared());
  const int expert = static_cast<int>(threadIdx.x);
  const int count = expert < experts ? plan.begin[expert] : 0;
  const int rest = count % kLargeTile;
  const bool small_rest = rest <= static_cast<int>(kSmallRest);
  const int small = small_rest ? (rest + kSmallTile - 1) / kSmallTile : 0;
  const int large = count / kLargeTile + (small_rest ? 0 : 1);
  const PlanSums own{count, small, large};
  PlanSums sum = own;  // over the experts up to this one
  for (int distance = 1; distance < kMaxExperts; distance *= 2) {
    sums[expert] = sum;
    __syncthreads();
    if (expert >= distance) sum = Add(sums[expert - distance], sum);
    __syncthreads();
  }
  if (expert >= experts) return;
  if (expert == 0) plan.begin[0] = plan.small_begin[0] = plan.large_begin[0] = 0;
  plan.begin[expert + 1] = sum.rows;
  plan.small_begin[expert + 1] = sum.small;
  plan.large_begin[expert + 1] = sum.large;
  int begin = sum.rows - own.rows;
  for (int i = 0; i < large; ++i) {
    const int rows = min(kLargeTile, sum.rows - begin);
    plan.large[sum.large - large + i] = {expert, begin, rows};
    begin += rows;
  }
  for (int i = 0; i < small; ++i) {
    const int rows = min(kSmallTile, sum.rows - begin);
    plan.small[sum.small - small + i] = {expert, begin, rows};
    begin += rows;
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    FillKernel(const int32_t* ids, int64_t stride, int64_t choices, int64_t chosen, int64_t experts, RoutingPlan plan) {
  BeginKernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t expert = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (expert >= experts) return;
  int next = plan.begin[expert];
  for (int64_t i = 0; i < choices; i += 32) {
    const bool is_mine = i + lane < choices && ids[(i + lane) * stride] == expert;
    const unsigned all = __ballot_sync(kAllLanes, is_mine);
    if (is_mine) {
      const int at = next + __popc(all & ((1u << lane) - 1));
      plan.row_of[at] = static_cast<int32_t>((i + lane) / chosen);
      plan.routed_of[i + lane] = at;
    }
    next += __popc(all);
  }
}

constexpr int kRowThreads = 256;  // in a block whose threads share a row's elements

// ---- Spread

// One block per choice.
__global__ void __launch_bounds__(kRowThreads) SpreadRowsKernel(SpreadRowsArgs args) {
  BeginKernel();
  const int64_t choice = blockIdx.x;
  const int64_t to = args.routed_of[choice];
  const uint4* const row = reinterpret_cast<const uint4*>(args.x + choice / args.chosen * args.width);
  uint4* const out = reinterpret_cast<uint4*>(args.out + to * args.width);
  for (int64_t i = threadIdx.x; i < args.width / 8; i += kRowThreads) out[i] = row[i];
  if (threadIdx.x == 0) args.out_ids[to] = args.ids[choice * args.stride];
}

// ---- Combine

__device__ __forceinline__ float AddWeighted(float weight, float x, float sum) { return fmaf(weight, x, sum); }
__device__ __forceinline__ float4 AddWeighted(float weight, const float4& x, const float4& sum) {
  return make_float4(fmaf(weight, x.x, sum.x), fmaf(weight, x.y, sum.y), fmaf(weight, x.z, sum.z),
                     fmaf(weight, x.w, sum.w));
}

// A zero of the type that the array has.
__device__ __forceinline__ float ZeroOf(const float*) { return 0; }
__device__ __forceinline__ float4 ZeroOf(const float4*) { return make_float4(0, 0, 0, 0); }

struct CombineScratch {
  int32_t routed[kMaxChosen];
  float weights[kMaxChosen];
};

// One block per row. Its first warp finds the row's choices in the group: most rows have none, and their sums stay
// untouched. T: one number or four.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) CombineKernel(CombineArgs args) {
  BeginKernel();
  CombineScratch& scratch = *reinterpret_cast<CombineScratch*>(DynamicShared());
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int64_t choice = row * args.chosen + lane;
  const int32_t id = lane < args.chosen ? args.ids[choice * args.stride] : -1;
  const unsigned in_group = __ballot_sync(kAllLanes, id >= args.first && id < args.end);
  if (in_group == 0 && args.first > 0) return;
  if (thread < 32 && (in_group >> lane & 1) != 0) {
    const int at = __popc(in_group & ((1u << lane) - 1));
    scratch.routed[at] = args.routed_of[choice];
    scratch.weights[at] = args.weights == nullptr ? 1.0f : args.weights[choice * args.stride];
  }
  __syncthreads();
  const int count = __popc(in_group);
  const int64_t width = args.hidden * static_cast<int64_t>(sizeof(float)) / static_cast<int64_t>(sizeof(T));
  T* const sums = reinterpret_cast<T*>(args.sums) + row * width;
  const T* const expert_out = reinterpret_cast<const T*>(args.expert_out);
  for (int64_t i = thread; i < width; i += kRowThreads) {
    T sum = ZeroOf(sums);
    if (args.first > 0) sum = sums[i];
    for (int k = 0; k < count; ++k) {
      sum = AddWeighted(scratch.weights[k], expert_out[scratch.routed[k] * width + i], sum);
    }
    sums[i] = sum;
  }
}

unsigned WarpBlocks(int64_t warps) { return static_cast<unsigned>((warps + kWarps - 1) / kWarps); }

}  // namespace

LaunchResult LaunchChooseExperts(const ChooseExpertsArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.experts < 1 || args.experts > kMaxExperts || args.chosen < 1 || args.chosen > kMaxChosen ||
      args.groups < 1 || args.groups > kMaxGroups || args.experts % args.groups != 0 || args.kept_groups < 1 ||
      args.kept_groups > args.groups || args.chosen > args.kept_groups * (args.experts / args.groups)) {
    return {kInvalidArgument};
  }
  const HandOver& to_host = args.hand_over;
  if (to_host.x != nullptr) {
    constexpr uintptr_t kChunk = sizeof(uint4);
    if (to_host.width % 8 != 0 || reinterpret_cast<uintptr_t>(to_host.x) % kChunk != 0 ||
        reinterpret_cast<uintptr_t>(to_host.to) % kChunk != 0) {
      return {kInvalidArgument};
    }
    return Launch("choose_experts and hand over", ChooseAndHandOverKernel, dim3(static_cast<unsigned>(args.rows)),
                  dim3(32 * kWarps), sizeof(ChoiceScratch), stream, args);
  }
  return Launch("choose_experts", ChooseExpertsKernel, dim3(WarpBlocks(args.rows)), dim3(32 * kWarps),
                kWarps * sizeof(ChoiceScratch), stream, args);
}

LaunchResult LaunchPlanExperts(const int32_t* ids, int64_t stride, int64_t rows, int64_t chosen, int64_t experts,
                               const RoutingPlan& plan, Stream stream) {
  if (experts < 1 || experts > kMaxExperts || rows * chosen > 0x7fffffff) return {kInvalidArgument};
  const int64_t choices = rows * chosen;
  LaunchResult result = Launch("count", CountKernel, dim3(WarpBlocks(experts)), dim3(32 * kWarps), 0, stream, ids,
                               stride, choices, experts, plan.begin);
  if (!result.ok()) return result;
  result = Launch("plan", PlanKernel, dim3(1), dim3(kMaxExperts), kMaxExperts * sizeof(PlanSums), stream,
                  static_cast<int>(experts), plan);
  if (!result.ok()) return result;
  return Launch("fill", FillKernel, dim3(WarpBlocks(experts)), dim3(32 * kWarps), 0, stream, ids, stride, choices,
                chosen, experts, plan);
}

LaunchResult LaunchSpreadRows(const SpreadRowsArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  constexpr uintptr_t kChunk = sizeof(uint4);
  if (args.chosen < 1 || args.width % 8 != 0 || reinterpret_cast<uintptr_t>(args.x) % kChunk != 0 ||
      reinterpret_cast<uintptr_t>(args.out) % kChunk != 0) {
    return {kInvalidArgument};
  }
  return Launch("spread_rows", SpreadRowsKernel, dim3(static_cast<unsigned>(args.rows * args.chosen)),
                dim3(kRowThreads), 0, stream, args);
}

LaunchResult LaunchCombine(const CombineArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.chosen < 1 || args.chosen > kMaxChosen) return {kInvalidArgument};
  const dim3 grid(static_cast<unsigned>(args.rows));
  const auto is_aligned = [](const float* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0; };
  if (args.hidden % 4 == 0 && is_aligned(args.sums) && is_aligned(args.expert_out)) {
    return Launch("combine", CombineKernel<float4>, grid, dim3(kRowThreads), sizeof(CombineScratch), stream, args);
  }
  return Launch("combine", CombineKernel<float>, grid, dim3(kRowThreads), sizeof(CombineScratch), stream, args);
}

}  // namespace moestro::cuda
