// A library's GEMV behind a C interface. Each library is a plug-in that only the benchmark loads. So `moestro` itself
// neither needs the library nor starts its threads.
#pragma once

#include <cstdint>

extern "C" {

struct MoestroGemvLibrary {
  const char* (*describe)();  // name, version and, where known, the chosen kernels
  const char* format;         // of the weights: "F32", "BF16"
  int64_t weight_bytes;       // of one weight
  // Takes row-major weights [rows, cols] and an input [cols], both F32, and converts them to the library's preferred
  // format. Null if it cannot. `threads`: the threads that run uses.
  void* (*create)(int64_t rows, int64_t cols, const float* weights, const float* input, int threads);
  void (*run)(void* gemv);
  const float* (*output)(void* gemv);  // [rows], of the last run
  void (*destroy)(void* gemv);
};

// The function that a plug-in exports under the name kGemvLibrarySymbol.
typedef const MoestroGemvLibrary* (*MoestroGemvLibraryFunction)();
}

inline constexpr char kGemvLibrarySymbol[] = "moestro_gemv_library";
