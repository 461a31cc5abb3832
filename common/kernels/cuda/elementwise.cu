#include <cuda_runtime.h>

#include "common/kernels/cuda/elementwise.h"
#include "common/kernels/cuda/int8_codes.cuh"
#include "common/kernels/cuda/int8_inputs.h"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/reduce.cuh"
#include "common/kernels/cuda/silu.cuh"
#include "common/tensor/packed_matrix.h"

namespace moestro::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSharedFloats = kThreads / 32;  // scratch of BlockSum

__device__ __forceinline__ uint16_t ToBf16(float value) { return static_cast<uint16_t>(PackBf16(value, 0.0f)); }

__device__ __forceinline__ float Widen(uint16_t bf16) { return __uint_as_float(uint32_t{bf16} << 16); }
__device__ __forceinline__ float Widen(float value) { return value; }

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T numbers[kCount];
};

// The table may be in host memory, which is read at the bus's rate only if a warp asks for whole lines: kCount 4.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const T* table, const int32_t* tokens, int64_t hidden, float* residual) {
  BeginKernel();
  const int64_t row = blockIdx.x, vectors = hidden / kCount;
  const auto* const from =
      reinterpret_cast<const Vector<T, kCount>*>(table + (tokens == nullptr ? row : tokens[row]) * hidden);
  auto* const to = reinterpret_cast<Vector<float, kCount>*>(residual + row * hidden);
  for (int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    const Vector<T, kCount> narrow = from[i];
    Vector<float, kCount> wide;
    for (int at = 0; at < kCount; ++at) wide.numbers[at] = Widen(narrow.numbers[at]);
    to[i] = wide;
  }
}

__device__ __forceinline__ float Mean(const float* x, int64_t n, float* shared) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += x[i];
  return BlockSum<kThreads>(sum, shared) / static_cast<float>(n);
}

// 1 / sqrt(mean((x - mean)^2) + eps), the same in all threads.
__device__ __forceinline__ float InverseRoot(const float* x, float mean, int64_t n, float eps, float* shared) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  return 1.0f / sqrtf(BlockSum<kThreads>(squares, shared) / static_cast<float>(n) + eps);
}

// The codes of a row's norm. The sum of the squares has put a barrier behind what other threads may have written to x.
__device__ __forceinline__ void CodeNorm(const RmsNormArgs& args, int64_t row, float mean, float inverse) {
  const float* const x = args.x + row * args.x_stride;
  const int thread = static_cast<int>(threadIdx.x);
  const auto number = [&](int64_t i) { return i < args.n ? (x[i] - mean) * inverse * args.weight[i] : 0.0f; };
  const auto four = [&](int64_t col) {
    return make_uint2(PackBf16(number(col), number(col + 1)), PackBf16(number(col + 2), number(col + 3)));
  };
  uint32_t greatest = 0;
  for (int64_t col = 4 * thread; col < args.n; col += 4 * kThreads) {
    greatest = Greater(greatest, GreatestMagnitude(four(col)));
  }
  const RowCodes codes = CodesOf(BlockGreatest<kThreads>(greatest, reinterpret_cast<uint32_t*>(DynamicShared())));
  auto* const to = reinterpret_cast<uint32_t*>(args.out_int8 + row * args.out_int8_stride);
  if (thread == 0) to[0] = __float_as_uint(codes.scale);
  const int64_t padded = (args.n + 15) / 16 * 16;
  for (int64_t col = 4 * thread; col < padded; col += 4 * kThreads) to[(kInt8Header + col) / 4] = codes.Of(four(col));
}

__device__ __forceinline__ void NormRow(const RmsNormArgs& args, int64_t row) {
  const float* x = args.x + row * args.x_stride;
  float* const shared = reinterpret_cast<float*>(DynamicShared());
  const float mean = args.subtract_mean ? Mean(x, args.n, shared) : 0.0f;
  const float inverse = InverseRoot(x, mean, args.n, args.eps, shared);
  for (int64_t i = threadIdx.x; i < args.n; i += kThreads) {
    const float value = (x[i] - mean) * inverse * args.weight[i];
    if (args.out != nullptr) args.out[row * args.n + i] = value;
    if (args.out_bf16 != nullptr) args.out_bf16[row * args.out_bf16_stride + i] = ToBf16(value);
  }
  if (args.out_int8 != nullptr) CodeNorm(args, row, mean, inverse);
}

bool CanCode(const RmsNormArgs& args) {
  return args.out_int8 == nullptr || (reinterpret_cast<uintptr_t>(args.out_int8) % 16 == 0 &&
                                      args.out_int8_stride % 8 == 0 && args.out_int8_stride >= Int8Stride(args.n));
}

__global__ void __launch_bounds__(kThreads) RmsNormKernel(RmsNormArgs args) {
  BeginKernel();
  NormRow(args, blockIdx.x);
}

__global__ void __launch_bounds__(kThreads)
    SiluMulKernel(const float* gate, const float* up, int64_t n, int64_t stride, uint16_t* out, int64_t out_stride) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.y} * kThreads) {
    out[row * out_stride + i] = ToBf16(SiluMul(gate[row * stride + i], up[row * stride + i]));
  }
}

__global__ void __launch_bounds__(kThreads) AddKernel(const float* x, int64_t n, float* sum) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) sum[i] += x[i];
}

// Fours of a row that a thread loads at once: so many hide how far away host memory is.
constexpr int kLoadedAtOnce = 8;

// Threads of the host write `routed` between launches, at the same addresses for every layer.
__global__ void __launch_bounds__(kThreads) AddExpertsKernel(AddExpertsArgs args, RmsNormArgs norm) {
  BeginKernel();
  const int64_t row = blockIdx.x, first = row * args.hidden;
  const float gate = args.gates == nullptr ? 0.0f : Sigmoid(args.gates[row]);
  const auto add = [&](float sum, float shared) {
    return args.gates == nullptr ? sum + shared : fmaf(gate, shared, sum);
  };
  for (int64_t begin = 4 * threadIdx.x; begin < args.hidden; begin += kLoadedAtOnce * 4 * kThreads) {
    float4 sums[kLoadedAtOnce];
#pragma unroll
    for (int k = 0; k < kLoadedAtOnce; ++k) {
      const int64_t i = begin + k * 4 * kThreads;
      if (i < args.hidden) sums[k] = LoadFromHost(args.routed + first + i);
    }
#pragma unroll
    for (int k = 0; k < kLoadedAtOnce; ++k) {
      const int64_t i = begin + k * 4 * kThreads;
      if (i >= args.hidden) continue;
      float4 sum = sums[k];
      if (args.shared != nullptr) {
        const float4 shared = *reinterpret_cast<const float4*>(args.shared + first + i);
        sum = make_float4(add(sum.x, shared.x), add(sum.y, shared.y), add(sum.z, shared.z), add(sum.w, shared.w));
      }
      auto* const to = reinterpret_cast<float4*>(args.residual + first + i);
      const float4 before = *to;
      *to = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
    }
  }
  if (norm.weight == nullptr) return;
  __syncthreads();  // the norm reads what other threads have written
  NormRow(norm, row);
}

__global__ void __launch_bounds__(kThreads) AddBiasKernel(const float* bias, int64_t n, float* x) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.y} * kThreads) {
    x[row * n + i] += bias[i];
  }
}

__global__ void __launch_bounds__(kThreads) ClampKernel(float limit, int64_t n, float* x) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  if (x[i] > limit) x[i] = limit;
  if (x[i] < -limit) x[i] = -limit;
}

__global__ void __launch_bounds__(kThreads) AddGatedKernel(const float* x, const float* gates, int64_t n, float* sum) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  const float weight = Sigmoid(gates[row]);
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.y} * kThreads) {
    sum[row * n + i] = fmaf(weight, x[row * n + i], sum[row * n + i]);
  }
}

__global__ void __launch_bounds__(kThreads) SumPartsKernel(SumPartsArgs args) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.n) return;
  float sum = args.count > 0 ? args.parts[0][i] : 0.0f;
  for (int64_t part = 1; part < args.count; ++part) sum += args.parts[part][i];
  args.out[i] = sum;
}

__global__ void __launch_bounds__(kThreads) CopyKernel(const uint32_t* from, int64_t n, uint32_t* to) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) to[i] = from[i];
}

// Element i of the angles.dims rotated elements of x.
__device__ __forceinline__ float Rotated(const float* x, const RopeAngles& angles, int64_t row, int64_t i) {
  const int64_t half = angles.dims / 2;
  const bool adjacent = angles.pairs == RopePairs::kAdjacent;
  const int64_t pair = adjacent ? i / 2 : i % half;
  const float a = x[adjacent ? 2 * pair : pair], b = x[adjacent ? 2 * pair + 1 : pair + half];
  const float cosine = angles.cosine[row * half + pair], sine = angles.sine[row * half + pair];
  const bool is_first = adjacent ? i % 2 == 0 : i < half;
  return is_first ? a * cosine - b * sine : a * sine + b * cosine;
}

__global__ void __launch_bounds__(kThreads) RotateHeadsKernel(const float* x, int64_t heads, int64_t head_dim,
                                                              int64_t first, RopeAngles angles, uint16_t* out) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  const int64_t width = heads * head_dim;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < width; i += int64_t{gridDim.y} * kThreads) {
    const int64_t in_head = i % head_dim;
    const float* head = x + row * width + i - in_head;
    const bool rotated = in_head >= first && in_head < first + angles.dims;
    out[row * width + i] = ToBf16(rotated ? Rotated(head + first, angles, row, in_head - first) : head[in_head]);
  }
}

// A token's elements in its page; the sequence's pages begin at `first` in the list.
__device__ __forceinline__ uint16_t* Entry(const KvPagesView& pages, int64_t position, int64_t first = 0) {
  const int64_t at = first + position / pages.page_tokens;
  const uint64_t page = pages.list == nullptr ? static_cast<uint64_t>(at) : pages.list[at];
  uint8_t* const layer = pages.pages + page * static_cast<uint64_t>(pages.page_bytes) + pages.layer_offset;
  return reinterpret_cast<uint16_t*>(layer) + position % pages.page_tokens * pages.kv_dim;
}

__device__ __forceinline__ void StoreLatentRow(const StoreLatentArgs& args, int64_t row) {
  const int64_t position = args.positions == nullptr ? args.position + row : args.positions[row];
  const KvPagesView& pages = args.pages;
  const float* latent = args.kv_a + row * pages.kv_dim;
  const float* key = latent + args.latent;
  uint16_t* const entry = Entry(pages, position, args.first_page == nullptr ? 0 : args.first_page[row]);
  const float inverse = InverseRoot(latent, 0.0f, args.latent, args.eps, reinterpret_cast<float*>(DynamicShared()));
  for (int64_t i = threadIdx.x; i < pages.kv_dim; i += kThreads) {
    const uint16_t number = ToBf16(i < args.latent ? latent[i] * inverse * args.weight[i]
                                                   : Rotated(key, args.angles, row, i - args.latent));
    entry[i] = number;
    if (args.copy != nullptr) args.copy[row * pages.kv_dim + i] = number;
  }
}

__global__ void __launch_bounds__(kThreads) StoreLatentKernel(StoreLatentArgs args) {
  BeginKernel();
  StoreLatentRow(args, blockIdx.x);
}

// The rows of `norm` follow those of `args`.
__global__ void __launch_bounds__(kThreads) StoreLatentAndNormKernel(StoreLatentArgs args, RmsNormArgs norm) {
  BeginKernel();
  if (blockIdx.x < args.rows) {
    StoreLatentRow(args, blockIdx.x);
  } else {
    NormRow(norm, blockIdx.x - args.rows);
  }
}

__global__ void __launch_bounds__(kThreads) StoreKeysValuesKernel(StoreKeysValuesArgs args) {
  BeginKernel();
  const int64_t row = blockIdx.x;
  const int64_t width = args.kv_heads * args.head_dim;
  const int64_t position = args.positions == nullptr ? args.position + row : args.positions[row];
  uint16_t* const entry = Entry(args.pages, position, args.first_page == nullptr ? 0 : args.first_page[row]);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    const int64_t in_head = i % args.head_dim;
    const float* from = args.keys + row * width + i - in_head;
    const uint16_t key = ToBf16(in_head < args.angles.dims ? Rotated(from, args.angles, row, in_head) : from[in_head]);
    const uint16_t value = ToBf16(args.values[row * width + i]);
    entry[i] = key;
    entry[width + i] = value;
    if (args.copy == nullptr) continue;
    args.copy[row * 2 * width + i] = key;
    args.copy[row * 2 * width + width + i] = value;
  }
}

constexpr int kBlockTokens = 64;
constexpr int kUnpackWords = 32;                 // of a row, two numbers each
constexpr int kUnpackStride = kUnpackWords + 1;  // of a token in shared memory: lanes of 32 tokens hit different banks

// A block of threads takes up to 64 elements of the keys (grid.z 0) or values (1) of a layer and head.
__global__ void __launch_bounds__(kThreads) UnpackBlocksKernel(UnpackBlocksArgs args) {
  BeginKernel();
  uint32_t* const shared = reinterpret_cast<uint32_t*>(DynamicShared());
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t layer = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const int first = static_cast<int>(blockIdx.y) * 2 * kUnpackWords;
  const int words = static_cast<int>(min(int64_t{kUnpackWords}, (args.head_dim - first) / 2));
  const int64_t key_numbers = kBlockTokens * args.head_dim;
  const int64_t value_numbers = (args.head_dim + kRowGroup - 1) / kRowGroup * kRowGroup * kBlockTokens;
  const uint16_t* const packed = args.packed + (layer * args.kv_heads + head) * (key_numbers + value_numbers) +
                                 (blockIdx.z == 0 ? 0 : key_numbers);
  const uint32_t* const from = reinterpret_cast<const uint32_t*>(packed + int64_t{first} * kBlockTokens);
  if (blockIdx.z == 0) {  // a word: two elements of a token
    for (int at = thread; at < words * kBlockTokens; at += kThreads) {
      shared[at % kBlockTokens * kUnpackStride + at / kBlockTokens] = from[at];
    }
  } else {  // a word: two tokens of an element; rows beyond the last element are padding
    uint16_t* const halves = reinterpret_cast<uint16_t*>(shared);
    for (int at = thread; at < kBlockTokens / 2 * kBlockTokens; at += kThreads) {
      const int element = at % kBlockTokens, token = at / kBlockTokens * 2;
      if (element >= 2 * words) continue;
      halves[token * 2 * kUnpackStride + element] = static_cast<uint16_t>(from[at]);
      halves[(token + 1) * 2 * kUnpackStride + element] = static_cast<uint16_t>(from[at] >> 16);
    }
  }
  __syncthreads();
  const int64_t row_words = args.kv_heads * args.head_dim;  // keys and values
  uint32_t* const to = reinterpret_cast<uint32_t*>(args.rows) + layer * kBlockTokens * row_words +
                       (blockIdx.z == 0 ? 0 : row_words / 2) + head * args.head_dim / 2 + first / 2;
  for (int at = thread; at < kBlockTokens * kUnpackWords; at += kThreads) {
    const int token = at / kUnpackWords, word = at % kUnpackWords;
    if (word < words) to[token * row_words + word] = shared[token * kUnpackStride + word];
  }
}

// Blocks per row of `width` elements: enough threads for few wide rows, one block per row if there are many.
unsigned BlocksPerRow(int64_t rows, int64_t width) {
  constexpr int64_t kEnoughBlocks = 1024;
  const int64_t wanted = (kEnoughBlocks + rows - 1) / rows;
  const int64_t useful = (width + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < useful ? wanted : useful);
}

template <typename T>
LaunchResult EmbedRows(const T* table, const int32_t* tokens, int64_t rows, int64_t hidden, float* residual,
                       Stream stream) {
  if (rows == 0) return {};
  constexpr int kCount = 4;
  const bool fours = hidden % kCount == 0 && reinterpret_cast<uintptr_t>(table) % (kCount * sizeof(T)) == 0 &&
                     reinterpret_cast<uintptr_t>(residual) % (kCount * sizeof(float)) == 0;
  return Launch("embed", fours ? EmbedKernel<T, kCount> : EmbedKernel<T, 1>, dim3(static_cast<unsigned>(rows)),
                dim3(kThreads), 0, stream, table, tokens, hidden, residual);
}

bool HasDimensions(const StoreLatentArgs& args) {
  return args.latent >= 1 && args.angles.dims % 2 == 0 && args.pages.kv_dim == args.latent + args.angles.dims;
}

}  // namespace

LaunchResult LaunchEmbed(const uint16_t* table, const int32_t* tokens, int64_t rows, int64_t hidden, float* residual,
                         Stream stream) {
  return EmbedRows(table, tokens, rows, hidden, residual, stream);
}
LaunchResult LaunchEmbed(const float* table, const int32_t* tokens, int64_t rows, int64_t hidden, float* residual,
                         Stream stream) {
  return EmbedRows(table, tokens, rows, hidden, residual, stream);
}

LaunchResult LaunchRmsNorm(const RmsNormArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.n < 1 || !CanCode(args)) return {kInvalidArgument};
  return Launch("rms_norm", RmsNormKernel, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads),
                kSharedFloats * sizeof(float), stream, args);
}

LaunchResult LaunchSiluMul(const float* gate, const float* up, int64_t rows, int64_t n, int64_t stride, uint16_t* out,
                           int64_t out_stride, Stream stream) {
  if (rows == 0 || n == 0) return {};
  return Launch("silu_mul", SiluMulKernel, dim3(static_cast<unsigned>(rows), BlocksPerRow(rows, n)), dim3(kThreads), 0,
                stream, gate, up, n, stride, out, out_stride);
}

LaunchResult LaunchAdd(const float* x, int64_t n, float* sum, Stream stream) {
  if (n == 0) return {};
  return Launch("add", AddKernel, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)), dim3(kThreads), 0, stream,
                x, n, sum);
}

LaunchResult LaunchAddExperts(const AddExpertsArgs& args, const RmsNormArgs& norm, Stream stream) {
  if (args.rows == 0) return {};
  const bool is_of_residual =
      norm.x == args.residual && norm.x_stride == args.hidden && norm.rows == args.rows && norm.n == args.hidden;
  const auto has_fours = [](const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (args.hidden < 1 || args.hidden % 4 != 0 || !has_fours(args.routed) || !has_fours(args.shared) ||
      !has_fours(args.residual)) {
    return {kInvalidArgument};
  }
  if (norm.weight != nullptr && (!is_of_residual || !CanCode(norm))) return {kInvalidArgument};
  return Launch("add experts", AddExpertsKernel, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads),
                kSharedFloats * sizeof(float), stream, args, norm);
}

LaunchResult LaunchAddBias(const float* bias, int64_t rows, int64_t n, float* x, Stream stream) {
  if (rows == 0 || n == 0) return {};
  return Launch("add_bias", AddBiasKernel, dim3(static_cast<unsigned>(rows), BlocksPerRow(rows, n)), dim3(kThreads), 0,
                stream, bias, n, x);
}

LaunchResult LaunchClamp(float limit, int64_t n, float* x, Stream stream) {
  if (n == 0) return {};
  return Launch("clamp", ClampKernel, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)), dim3(kThreads), 0,
                stream, limit, n, x);
}

LaunchResult LaunchAddGated(const float* x, const float* gates, int64_t rows, int64_t n, float* sum, Stream stream) {
  if (rows == 0 || n == 0) return {};
  return Launch("add_gated", AddGatedKernel, dim3(static_cast<unsigned>(rows), BlocksPerRow(rows, n)), dim3(kThreads),
                0, stream, x, gates, n, sum);
}

LaunchResult LaunchSumParts(const SumPartsArgs& args, Stream stream) {
  if (args.n == 0) return {};
  if (args.count < 0 || args.count > kMaxParts) return {kInvalidArgument};
  return Launch("sum_parts", SumPartsKernel, dim3(static_cast<unsigned>((args.n + kThreads - 1) / kThreads)),
                dim3(kThreads), 0, stream, args);
}

LaunchResult LaunchCopy(const void* from, int64_t bytes, void* to, Stream stream) {
  if (bytes == 0) return {};
  constexpr int64_t kWord = sizeof(uint32_t);
  if (bytes % kWord != 0 || reinterpret_cast<uintptr_t>(from) % kWord != 0 ||
      reinterpret_cast<uintptr_t>(to) % kWord != 0) {
    return {kInvalidArgument};
  }
  const int64_t words = bytes / kWord;
  return Launch("copy", CopyKernel, dim3(static_cast<unsigned>((words + kThreads - 1) / kThreads)), dim3(kThreads), 0,
                stream, static_cast<const uint32_t*>(from), words, static_cast<uint32_t*>(to));
}

LaunchResult LaunchRotateHeads(const float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t first,
                               const RopeAngles& angles, uint16_t* out, Stream stream) {
  if (rows == 0) return {};
  if (angles.dims % 2 != 0 || first < 0 || first + angles.dims > head_dim) return {kInvalidArgument};
  return Launch("rotate_heads", RotateHeadsKernel,
                dim3(static_cast<unsigned>(rows), BlocksPerRow(rows, heads * head_dim)), dim3(kThreads), 0, stream, x,
                heads, head_dim, first, angles, out);
}

LaunchResult LaunchStoreLatent(const StoreLatentArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (!HasDimensions(args)) return {kInvalidArgument};
  return Launch("store_latent", StoreLatentKernel, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads),
                kSharedFloats * sizeof(float), stream, args);
}

LaunchResult LaunchStoreLatentAndNorm(const StoreLatentArgs& args, const RmsNormArgs& norm, Stream stream) {
  if (args.rows + norm.rows == 0) return {};
  if (!HasDimensions(args) || norm.n < 1 || !CanCode(norm)) return {kInvalidArgument};
  return Launch("store_latent and rms_norm", StoreLatentAndNormKernel,
                dim3(static_cast<unsigned>(args.rows + norm.rows)), dim3(kThreads), kSharedFloats * sizeof(float),
                stream, args, norm);
}

LaunchResult LaunchStoreKeysValues(const StoreKeysValuesArgs& args, Stream stream) {
  if (args.rows == 0) return {};
  if (args.angles.dims % 2 != 0 || args.angles.dims > args.head_dim ||
      args.pages.kv_dim != 2 * args.kv_heads * args.head_dim) {
    return {kInvalidArgument};
  }
  return Launch("store_keys_values", StoreKeysValuesKernel, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), 0,
                stream, args);
}

LaunchResult LaunchUnpackBlocks(const UnpackBlocksArgs& args, Stream stream) {
  if (args.layers == 0) return {};
  if (args.kv_heads < 1 || args.head_dim < 4 || args.head_dim % 4 != 0) return {kInvalidArgument};
  const dim3 grid(static_cast<unsigned>(args.layers * args.kv_heads),
                  static_cast<unsigned>((args.head_dim / 2 + kUnpackWords - 1) / kUnpackWords), 2);
  return Launch("unpack_blocks", UnpackBlocksKernel, grid, dim3(kThreads),
                kBlockTokens * kUnpackStride * sizeof(uint32_t), stream, args);
}

}  // namespace moestro::cuda
