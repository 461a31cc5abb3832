#include <cuda_runtime.h>

#include "common/kernels/cuda/fp8.cuh"
#include "common/kernels/cuda/launch.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/wgmma.cuh"
#include "tests/cuda/device.h"
#include "tests/cuda/kernels/ptx_probe.h"

namespace moestro::cuda {
namespace {

template <typename Sum>
struct MmaOperands {
  uint32_t a[4];
  uint32_t b[2];
  Sum d[4];
};

template <typename Sum>
__device__ __forceinline__ MmaOperands<Sum> LoadOperands(const uint32_t* a, const uint32_t* b, const Sum* d) {
  MmaOperands<Sum> operands;
  const unsigned lane = threadIdx.x;
  for (int i = 0; i < 4; ++i) operands.a[i] = a[4 * lane + i];
  for (int i = 0; i < 2; ++i) operands.b[i] = b[2 * lane + i];
  for (int i = 0; i < 4; ++i) operands.d[i] = d[4 * lane + i];
  return operands;
}
template <typename Sum>
__device__ __forceinline__ void StoreResult(const MmaOperands<Sum>& operands, Sum* d) {
  for (int i = 0; i < 4; ++i) d[4 * threadIdx.x + i] = operands.d[i];
}

__global__ void MmaBf16Kernel(const uint32_t* a, const uint32_t* b, float* d) {
  BeginKernel();
  MmaOperands<float> operands = LoadOperands(a, b, d);
  MmaBf16(operands.d, operands.a, operands.b);
  StoreResult(operands, d);
}

__global__ void MmaE4M3Kernel(const uint32_t* a, const uint32_t* b, float* d) {
  BeginKernel();
  MmaOperands<float> operands = LoadOperands(a, b, d);
  MmaE4M3(operands.d, operands.a, operands.b);
  StoreResult(operands, d);
}

__global__ void MmaS8Kernel(const uint32_t* a, const uint32_t* b, int32_t* d) {
  BeginKernel();
  MmaOperands<int32_t> operands = LoadOperands(a, b, d);
  MmaS8(operands.d, operands.a, operands.b);
  StoreResult(operands, d);
}

enum class ProductOf { kE4M3, kBf16, kBf16Transposed };

template <ProductOf kOf, int kSums>
__global__ void ProductKernel(const uint32_t* a, const uint8_t* rows, int part, bool add, float* d) {
  BeginKernel();
  constexpr int kThreads = 128, kColumns = 2 * kSums, kChunks = kSwizzledRowBytes / 16;
  uint8_t* const shared = SwizzledShared();
  const int thread = static_cast<int>(threadIdx.x);
  for (int chunk = thread; chunk < kColumns * kChunks; chunk += kThreads) {
    const int row = chunk / kChunks;
    *reinterpret_cast<uint4*>(shared + row * kSwizzledRowBytes + SwizzledPlace(row, chunk % kChunks) * 16) =
        reinterpret_cast<const uint4*>(rows)[chunk];
  }
  uint32_t operand[4];
  float sums[kSums];
  for (int i = 0; i < 4; ++i) operand[i] = a[4 * thread + i];
  for (int i = 0; i < kSums; ++i) sums[i] = d[kSums * thread + i];
  FenceWrites();
  __syncthreads();
  FenceProducts();
  const uint64_t b = SwizzledRows(shared);
  if constexpr (kOf == ProductOf::kE4M3) {
    ProductE4M3(sums, operand, Further(b, 32 * part), add);
  } else if constexpr (kOf == ProductOf::kBf16) {
    ProductBf16(sums, operand, Further(b, 32 * part), add);
  } else {
    ProductBf16Transposed(sums, operand, Further(b, 16 * kSwizzledRowBytes * part), add);
  }
  CommitProducts();
  WaitProducts<0>(sums);
  for (int i = 0; i < kSums; ++i) d[kSums * thread + i] = sums[i];
}

__global__ void LoadMatrixKernel(const uint16_t* rows, const int32_t* order, bool transposed, uint32_t* registers) {
  BeginKernel();
  const unsigned lane = threadIdx.x;
  uint8_t* const shared = DynamicShared();
  for (int i = 0; i < 8; ++i) reinterpret_cast<uint16_t*>(shared)[lane * 8 + i] = rows[lane * 8 + i];
  __syncthreads();
  uint32_t got[4];
  if (transposed) {
    LoadMatrixX4Transposed(got, shared + order[lane] * 16);
  } else {
    LoadMatrixX4(got, shared + order[lane] * 16);
  }
  for (int i = 0; i < 4; ++i) registers[4 * lane + i] = got[i];
}

template <int kBytes>
__global__ void CopyAsyncKernel(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to) {
  BeginKernel();
  const unsigned lane = threadIdx.x;
  uint8_t* const shared = DynamicShared();
  if constexpr (kBytes == 16) {
    CopyAsync16(shared + 16 * lane, from + 16 * lane, valid_bytes[lane]);
  } else if constexpr (kBytes == 8) {
    CopyAsync8(shared + 8 * lane, from + 8 * lane, valid_bytes[lane]);
  } else {
    CopyAsync4(shared + 4 * lane, from + 4 * lane, valid_bytes[lane]);
  }
  CommitCopies();
  WaitCopies<0>();
  __syncthreads();
  // The neighbour's element, so that the barrier matters.
  const unsigned other = lane ^ 1;
  for (int i = 0; i < kBytes; ++i) to[kBytes * other + i] = shared[kBytes * other + i];
}

constexpr unsigned kThreads = 128;
__device__ __forceinline__ int64_t Element() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

__global__ void PackBf16Kernel(const float* low, const float* high, int64_t n, uint32_t* out) {
  BeginKernel();
  const int64_t i = Element();
  if (i < n) out[i] = PackBf16(low[i], high[i]);
}
__global__ void PackE4M3Kernel(const float* low, const float* high, int64_t n, uint32_t* out) {
  BeginKernel();
  const int64_t i = Element();
  if (i < n) out[i] = PackE4M3(low[i], high[i]);
}
__global__ void FmaBf16x2Kernel(const uint32_t* a, const uint32_t* b, const uint32_t* c, int64_t n, uint32_t* out) {
  BeginKernel();
  const int64_t i = Element();
  if (i < n) out[i] = FmaBf16x2(a[i], b[i], c[i]);
}
__global__ void MaxAbsBf16x2Kernel(const uint32_t* a, const uint32_t* b, int64_t n, uint32_t* out) {
  BeginKernel();
  const int64_t i = Element();
  if (i < n) out[i] = MaxAbsBf16x2(a[i], b[i]);
}
__global__ void Exp2Kernel(const float* x, int64_t n, float* out) {
  BeginKernel();
  const int64_t i = Element();
  if (i < n) out[i] = Exp2(x[i]);
}
__global__ void ExpandKernel(uint32_t* out) {
  BeginKernel();
  const auto i = static_cast<uint32_t>(Element());
  const uint32_t codes = i | (255 - i) << 8 | (i ^ 0x55) << 16 | (i ^ 0xaa) << 24;
  out[4 * i] = ScaleE4M3(MoveE4M3<0>(codes));
  out[4 * i + 1] = ScaleE4M3(MoveE4M3<2>(codes));
  out[4 * i + 2] = AreNanE4M3(codes);
  out[4 * i + 3] = MayBeNanE4M3(codes) & kSignsE4M3;
}

dim3 Blocks(int64_t n) { return dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)); }

}  // namespace

LaunchResult ProbeMmaBf16(const uint32_t* a, const uint32_t* b, float* d) {
  return Launch("mma bf16", MmaBf16Kernel, dim3(1), dim3(32), 0, DeviceStream(), a, b, d);
}
LaunchResult ProbeMmaE4M3(const uint32_t* a, const uint32_t* b, float* d) {
  return Launch("mma e4m3", MmaE4M3Kernel, dim3(1), dim3(32), 0, DeviceStream(), a, b, d);
}
LaunchResult ProbeMmaS8(const uint32_t* a, const uint32_t* b, int32_t* d) {
  return Launch("mma s8", MmaS8Kernel, dim3(1), dim3(32), 0, DeviceStream(), a, b, d);
}
LaunchResult ProbeProductE4M3(int columns, const uint32_t* a, const uint8_t* rows, int part, bool add, float* d) {
  const auto kernel = columns == 16 ? ProductKernel<ProductOf::kE4M3, 8> : ProductKernel<ProductOf::kE4M3, 32>;
  return Launch("wgmma e4m3", kernel, dim3(1), dim3(128), columns * kSwizzledRowBytes, DeviceStream(), a, rows, part,
                add, d);
}
LaunchResult ProbeProductBf16(bool transposed, const uint32_t* a, const uint8_t* rows, int part, bool add, float* d) {
  const auto kernel = transposed ? ProductKernel<ProductOf::kBf16Transposed, 32> : ProductKernel<ProductOf::kBf16, 32>;
  return Launch("wgmma bf16", kernel, dim3(1), dim3(128), 64 * kSwizzledRowBytes, DeviceStream(), a, rows, part, add,
                d);
}
LaunchResult ProbeLoadMatrix(const uint16_t* rows, const int32_t* order, bool transposed, uint32_t* registers) {
  return Launch("ldmatrix", LoadMatrixKernel, dim3(1), dim3(32), 512, DeviceStream(), rows, order, transposed,
                registers);
}
LaunchResult ProbeCopyAsync(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to) {
  return Launch("cp.async", CopyAsyncKernel<16>, dim3(1), dim3(32), 512, DeviceStream(), from, valid_bytes, to);
}
LaunchResult ProbeCopyAsync4(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to) {
  return Launch("cp.async", CopyAsyncKernel<4>, dim3(1), dim3(32), 128, DeviceStream(), from, valid_bytes, to);
}
LaunchResult ProbeCopyAsync8(const uint8_t* from, const int32_t* valid_bytes, uint8_t* to) {
  return Launch("cp.async", CopyAsyncKernel<8>, dim3(1), dim3(32), 256, DeviceStream(), from, valid_bytes, to);
}
LaunchResult ProbePackBf16(const float* low, const float* high, int64_t n, uint32_t* out) {
  return Launch("pack", PackBf16Kernel, Blocks(n), dim3(kThreads), 0, DeviceStream(), low, high, n, out);
}
LaunchResult ProbePackE4M3(const float* low, const float* high, int64_t n, uint32_t* out) {
  return Launch("pack e4m3", PackE4M3Kernel, Blocks(n), dim3(kThreads), 0, DeviceStream(), low, high, n, out);
}
LaunchResult ProbeFmaBf16x2(const uint32_t* a, const uint32_t* b, const uint32_t* c, int64_t n, uint32_t* out) {
  return Launch("fma", FmaBf16x2Kernel, Blocks(n), dim3(kThreads), 0, DeviceStream(), a, b, c, n, out);
}
LaunchResult ProbeMaxAbsBf16x2(const uint32_t* a, const uint32_t* b, int64_t n, uint32_t* out) {
  return Launch("max", MaxAbsBf16x2Kernel, Blocks(n), dim3(kThreads), 0, DeviceStream(), a, b, n, out);
}
LaunchResult ProbeExp2(const float* x, int64_t n, float* out) {
  return Launch("exp2", Exp2Kernel, Blocks(n), dim3(kThreads), 0, DeviceStream(), x, n, out);
}
LaunchResult ProbeExpandE4M3(uint32_t* out) {
  return Launch("expand", ExpandKernel, Blocks(256), dim3(kThreads), 0, DeviceStream(), out);
}

}  // namespace moestro::cuda
