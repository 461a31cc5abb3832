#include "common/roofline/cpu_seconds.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/roofline/prompt_forecast.h"
#include "common/roofline/shapes.h"

namespace moestro::roofline {
namespace {

// Runs of the worker pool in a layer. MLA: norm, projections (two), cache, absorption, attention (two), values, output;
// grouped queries: norm, projections, cache, queries, attention (two), output. Then norm and router, and the MLPs.
constexpr double kLatentPhases = 11;
constexpr double kGroupedPhases = 9;

double LayerPhases(const weights::ModelSpec& spec) { return spec.kv_lora_rank > 0 ? kLatentPhases : kGroupedPhases; }

double Phases(const weights::ModelSpec& spec) { return static_cast<double>(spec.num_layers) * LayerPhases(spec); }

model::ModelWeights Shapes(const weights::ModelSpec& spec, DType format) {
  return ShapesOnly(spec, [&](const model::ModelTensor& tensor) {
    if (!model::IsLinear(tensor.role)) return DType::kBF16;
    return format == DType::kI8 && tensor.role == model::TensorRole::kLatentUp ? DType::kBF16 : format;
  });
}

double DecodeFraction(const CpuMachine& machine, DType format) {
  if (format == DType::kI8) return machine.int8_decode_fraction;
  return format == DType::kF8E4M3 ? machine.fp8_decode_fraction : machine.bf16_decode_fraction;
}

// Operations per second of products with weights, all sockets.
double ProductRate(const CpuMachine& machine, DType format) {
  if (format == DType::kI8) return machine.sockets * machine.int8_ops_per_second * machine.int8_linear_fraction;
  return machine.sockets * machine.bf16_flops_per_second *
         (format == DType::kF8E4M3 ? machine.fp8_linear_fraction : machine.bf16_linear_fraction);
}

double AttentionRate(const CpuMachine& machine) {
  return machine.sockets * machine.bf16_flops_per_second * machine.attention_fraction;
}

double ReadRate(const CpuMachine& machine) {
  return machine.sockets * machine.memory_bytes_per_second * machine.memory_fraction;
}

double InputBytes(const PackedMatrix& matrix) { return 2 * static_cast<double>(matrix.cols); }

// BF16 inputs of a row's products in a layer. Every socket needs all of them.
double InputBytes(const weights::ModelSpec& spec, const model::LayerWeights& layer) {
  const model::FeedForwardWeights& mlps = layer.feed_forward;
  double bytes = 4 * static_cast<double>(spec.hidden_size);  // of attention and of the MLPs
  if (spec.q_lora_rank > 0) bytes += InputBytes(layer.attention.q_b);
  bytes += InputBytes(layer.attention.o) + InputBytes(mlps.dense.down);
  if (!mlps.experts.empty()) {
    bytes += static_cast<double>(spec.experts_per_token) * InputBytes(mlps.experts.front().down);
  }
  return bytes;
}

double InputBytes(const weights::ModelSpec& spec, const model::ModelWeights& weights) {
  double bytes = 0;
  for (const model::LayerWeights& layer : weights.layers) bytes += InputBytes(spec, layer);
  return bytes;
}

// Each socket has an even part of what all of them need, and takes the rest over its links.
double ExchangeSeconds(const CpuMachine& machine, double bytes) {
  return (machine.sockets - 1) / machine.sockets * bytes / machine.link_bytes_per_second;
}

}  // namespace

ModelCount CountModelInFormat(const weights::ModelSpec& spec, DType format) {
  MOE_CHECK(format == DType::kF8E4M3 || format == DType::kI8 || format == DType::kBF16);
  return CountModel(spec, Shapes(spec, format));
}

CpuLayers::CpuLayers(const CpuMachine& machine, const weights::ModelSpec& spec, DType format)
    : machine_(machine), spec_(spec), format_(format), count_(CountModelInFormat(spec, format)) {
  const model::ModelWeights shapes = Shapes(spec, format);
  for (const model::LayerWeights& layer : shapes.layers) input_bytes_.push_back(InputBytes(spec, layer));
}

CpuSeconds CpuLayers::Layer(int64_t index, model::MlaForm form, double before, double rows) const {
  const auto experts = static_cast<double>(spec_.num_experts), taken = static_cast<double>(spec_.experts_per_token);
  const double met = spec_.num_experts == 0 ? 0 : experts * (1 - std::pow(1 - taken / experts, rows));
  const LayerCount& layer = count_.layers[static_cast<size_t>(index)];
  const double elements =
      layer.attention.elements + layer.router.elements + layer.dense.elements + taken * layer.expert.elements;
  return {.read = (layer.attention.bytes + layer.router.bytes + layer.dense.bytes + met * layer.expert.bytes) /
                  ReadRate(machine_),
          .compute = 2 * rows * elements / ProductRate(machine_, format_) +
                     AttentionOperations(spec_, form, spec_.WindowOf(index), before, rows) / AttentionRate(machine_),
          .exchange = ExchangeSeconds(machine_, rows * input_bytes_[static_cast<size_t>(index)]),
          .wait = LayerPhases(spec_) * machine_.phase_seconds};
}

CpuSeconds CpuLayers::Head() const {
  return {.read = count_.head.bytes / ReadRate(machine_),
          .compute = 2 * count_.head.elements / ProductRate(machine_, format_)};
}

CpuSeconds PromptSeconds(const CpuMachine& machine, const weights::ModelSpec& spec, DType format, int64_t tokens) {
  const CpuLayers layers(machine, spec, format);
  CpuSeconds sum = layers.Head();
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const CpuSeconds layer = layers.Layer(l, model::MlaForm::kUnabsorbed, 0, static_cast<double>(tokens));
    sum.read += layer.read;
    sum.compute += layer.compute;
    sum.exchange += layer.exchange;
    sum.wait += layer.wait;
  }
  return sum;
}

CpuSeconds DecodeSeconds(const CpuMachine& machine, const weights::ModelSpec& spec, DType format, int64_t position) {
  const ModelCount model = CountModelInFormat(spec, format);
  double experts = 0, attention = 0, kv = 0;
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    if (spec.IsMoeLayer(l)) experts += static_cast<double>(spec.experts_per_token);
    const double seen = VisiblePairs(static_cast<double>(position), 1, spec.WindowOf(l));
    attention += AttentionFlops(spec, model::MlaForm::kAbsorbed, seen);
    kv += KvBytes(spec, seen);
  }
  const double bytes = DecodeBytes(spec, model, position, 1, static_cast<int64_t>(experts));
  // Keys and values lie in any socket's memory; each socket reads its even part of them.
  const double exchanged = InputBytes(spec, Shapes(spec, format)) + kv / machine.sockets;
  return {.read = bytes / (ReadRate(machine) * DecodeFraction(machine, format)),
          .compute = attention / AttentionRate(machine),
          .exchange = ExchangeSeconds(machine, exchanged),
          .wait = Phases(spec) * machine.phase_seconds};
}

}  // namespace moestro::roofline
