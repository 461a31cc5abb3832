// oneDNN's inner product of one row in BF16, with weights in the layout it requests.
#include <omp.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "loadtest/bench/baselines/gemv_library.h"

namespace {

using dnnl::memory;
using Inner = dnnl::inner_product_forward;

struct OneDnnGemv {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Inner primitive;
  memory input;
  memory weights;
  memory output;
  int threads;
};

memory::desc RowMajor(const memory::dims& dims, memory::data_type type) { return {dims, type, memory::format_tag::ab}; }

// Converts `values` to the layout and type of `wanted`.
memory Converted(OneDnnGemv& gemv, const memory::dims& dims, const float* values, const memory::desc& wanted) {
  memory source(RowMajor(dims, memory::data_type::f32), gemv.engine, const_cast<float*>(values));
  memory target(wanted, gemv.engine);
  dnnl::reorder(source, target).execute(gemv.stream, source, target);
  gemv.stream.wait();
  return target;
}

const char* Describe() {
  static const std::string description = [] {
    const dnnl_version_t* version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
  }();
  return description.c_str();
}

void* Create(int64_t rows, int64_t cols, const float* weights, const float* input, int threads) {
  try {
    omp_set_num_threads(threads);
    auto gemv = std::make_unique<OneDnnGemv>();
    gemv->threads = threads;
    constexpr auto kBf16 = memory::data_type::bf16;
    const Inner::primitive_desc chosen(
        Inner::desc(dnnl::prop_kind::forward_inference, memory::desc({1, cols}, kBf16, memory::format_tag::any),
                    memory::desc({rows, cols}, kBf16, memory::format_tag::any),
                    RowMajor({1, rows}, memory::data_type::f32)),
        gemv->engine);
    gemv->primitive = Inner(chosen);
    gemv->input = Converted(*gemv, {1, cols}, input, chosen.src_desc());
    gemv->weights = Converted(*gemv, {rows, cols}, weights, chosen.weights_desc());
    gemv->output = memory(chosen.dst_desc(), gemv->engine);
    return gemv.release();
  } catch (const dnnl::error&) {
    return nullptr;  // no BF16 on this CPU
  }
}

void Run(void* handle) {
  auto& gemv = *static_cast<OneDnnGemv*>(handle);
  omp_set_num_threads(gemv.threads);
  gemv.primitive.execute(gemv.stream,
                         {{DNNL_ARG_SRC, gemv.input}, {DNNL_ARG_WEIGHTS, gemv.weights}, {DNNL_ARG_DST, gemv.output}});
  gemv.stream.wait();
}

const float* Output(void* handle) {
  return static_cast<const float*>(static_cast<OneDnnGemv*>(handle)->output.get_data_handle());
}
void Destroy(void* handle) { delete static_cast<OneDnnGemv*>(handle); }

constexpr MoestroGemvLibrary kLibrary = {.describe = Describe,
                                         .format = "BF16",
                                         .weight_bytes = 2,
                                         .create = Create,
                                         .run = Run,
                                         .output = Output,
                                         .destroy = Destroy};

}  // namespace

extern "C" const MoestroGemvLibrary* moestro_gemv_library() { return &kLibrary; }
