// A library's GEMV behind a C interface. Each library is a plug-in that only the benchmark loads, so that `moestro`
// itself neither needs it nor starts its threads.
#pragma once

#include <cstdint>

extern "C" {

struct MoestroGemvLibrary {
  const char* (*describe)();  // name, version and, where it tells, the kernels it chose
  const char* format;         // of the weights: "F32", "BF16"
  int64_t weight_bytes;       // of one weight
  // Takes row-major weights [rows, cols] and an input [cols], both F32, and converts them to what the library likes
  // best. Null if it cannot. `threads`: that run uses.
  void* (*create)(int64_t rows, int64_t cols, const float* weights, const float* input, int threads);
  void (*run)(void* gemv);
  const float* (*output)(void* gemv);  // [rows], of the last run
  void (*destroy)(void* gemv);
};

// What a plug-in exports, under the name of kGemvLibrarySymbol.
typedef const MoestroGemvLibrary* (*MoestroGemvLibraryFunction)();
}

inline constexpr char kGemvLibrarySymbol[] = "moestro_gemv_library";
