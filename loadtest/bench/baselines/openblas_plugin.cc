#include <cblas.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "loadtest/bench/baselines/gemv_library.h"

namespace {

struct OpenBlasGemv {
  int rows;
  int cols;
  std::unique_ptr<float[]> weights;
  std::vector<float> input;
  std::vector<float> output;
};

const char* Describe() {
  // "OpenBLAS 0.3.21 NO_LAPACKE ...": name, version, build settings.
  static const std::string description = [] {
    const std::string config = openblas_get_config();
    return config.substr(0, config.find(' ', config.find(' ') + 1)) + " (" + openblas_get_corename() + " kernels)";
  }();
  return description.c_str();
}

void* Create(int64_t rows, int64_t cols, const float* weights, const float* input, int threads) {
  openblas_set_num_threads(threads);
  auto gemv = std::make_unique<OpenBlasGemv>();
  gemv->rows = static_cast<int>(rows);
  gemv->cols = static_cast<int>(cols);
  gemv->weights = std::make_unique<float[]>(rows * cols);
  std::copy(weights, weights + rows * cols, gemv->weights.get());
  gemv->input.assign(input, input + cols);
  gemv->output.resize(rows);
  return gemv.release();
}

void Run(void* handle) {
  auto& gemv = *static_cast<OpenBlasGemv*>(handle);
  cblas_sgemv(CblasRowMajor, CblasNoTrans, gemv.rows, gemv.cols, 1.0f, gemv.weights.get(), gemv.cols, gemv.input.data(),
              1, 0.0f, gemv.output.data(), 1);
}

const float* Output(void* handle) { return static_cast<OpenBlasGemv*>(handle)->output.data(); }
void Destroy(void* handle) { delete static_cast<OpenBlasGemv*>(handle); }

constexpr MoestroGemvLibrary kLibrary = {.describe = Describe,
                                         .format = "F32",
                                         .weight_bytes = 4,
                                         .create = Create,
                                         .run = Run,
                                         .output = Output,
                                         .destroy = Destroy};

}  // namespace

extern "C" const MoestroGemvLibrary* moestro_gemv_library() { return &kLibrary; }
