#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/config.h"
#include "common/roofline/shapes.h"
#include "common/roofline/work_count.h"
#include "services/cli/model/make_model/gguf/gguf_plan.h"
#include "services/cli/paper/osdi/figures.h"
#include "services/decode/overlap/simulate.h"

namespace moestro::cli {
namespace {

constexpr int64_t kShort = kKibi;

absl::StatusOr<double> Rate(const device::HardwareSpec& hardware, const weights::ModelSpec& spec, int64_t sequences,
                            int64_t context) {
  MOE_ASSIGN_OR_RETURN(const double step,
                       decode::SimulateDecodeStep(hardware, spec, sequences, context, sequences > 1 ? 2 : 1));
  return static_cast<double>(sequences) / step;
}

// Bytes per weight, as llama.cpp's Q4_K_M has them; kv_b in the 16 bits that it has here.
model::ModelWeights FourBitShapes(const weights::ModelSpec& spec) {
  return roofline::ShapesOnly(spec, [&](const model::ModelTensor& tensor) {
    if (tensor.role == model::TensorRole::kHead) return DType::kQ6K;
    if (!model::IsLinear(tensor.role)) return DType::kQ4K;  // the embedding
    if (tensor.role == model::TensorRole::kLatentUp || tensor.role == model::TensorRole::kKeyUpTransposed) {
      return DType::kF16;
    }
    constexpr char kLayers[] = "layers.";
    const size_t at = tensor.name.find(kLayers);
    const bool down = tensor.name.find("down_proj") != std::string::npos && at != std::string::npos;
    const int64_t layer = down ? std::atoll(tensor.name.c_str() + at + sizeof kLayers - 1) : 0;
    return down && HasMoreBits(layer, spec.num_layers) ? DType::kQ6K : DType::kQ4K;
  });
}

double AllBytes(const weights::ModelSpec& spec, const roofline::ModelCount& model) {
  // The embedding has as many weights as the head.
  double bytes = model.head.bytes + model.head.elements * 4.5 / 8;
  for (const roofline::LayerCount& layer : model.layers) {
    bytes += layer.attention.bytes + layer.router.bytes + layer.dense.bytes +
             static_cast<double>(spec.num_experts) * layer.expert.bytes;
  }
  return bytes;
}

}  // namespace

absl::Status AddDecode(const OsdiContext& context, Figure& figure) {
  Chart chart{.title = "Tokens per second of all sequences, as built",
              .x_label = "tokens of context",
              .y_label = "tokens/s",
              .log_x = true};
  for (const auto& [model, name] : {std::pair("deepseek-v3", "DeepSeek-R1"), std::pair("kimi-k2", "Kimi-K2")}) {
    const weights::ModelSpec spec = checkpoint::PublishedModel(model);
    for (const int64_t sequences : {1, 2}) {
      Chart::Curve curve{.name = absl::StrFormat("%s, %s", name, sequences == 1 ? "one stream" : "two streams"),
                         .points = {}};
      for (int64_t tokens = kShort; tokens <= 32 * kKibi; tokens *= 2) {
        MOE_ASSIGN_OR_RETURN(const double rate, Rate(context.built(), spec, sequences, tokens));
        curve.points.push_back({static_cast<double>(tokens), rate});
      }
      chart.curves.push_back(std::move(curve));
    }
  }
  figure.charts.push_back(std::move(chart));

  const roofline::ModelCount count = roofline::CountModel(context.v3, DType::kF8E4M3);
  const device::HardwareSpec& hardware = context.built();
  const double experts = static_cast<double>(context.v3.experts_per_token) * count.expert_bytes() /
                         (hardware.cpu_memory_bytes_per_second * hardware.cpu_memory_fraction);
  MOE_ASSIGN_OR_RETURN(const double rate, Rate(hardware, context.v3, 1, kShort));
  const double others = 1 / rate - static_cast<double>(context.v3.num_moe_layers()) * experts;
  figure.claims.push_back({.what = "µs of experts, a layer of one stream (approximately)",
                           .paper = 450,
                           .section = "3.3.1",
                           .ours = 1e6 * experts});
  figure.claims.push_back({.what = "µs of all else, a layer of one stream (approximately)",
                           .paper = 350,
                           .section = "3.3.1",
                           .ours = 1e6 * others / static_cast<double>(context.v3.num_layers)});
  return absl::OkStatus();
}

absl::Status AddBatches(const OsdiContext& context, Figure& figure) {
  constexpr int64_t kBatches[] = {1, 2, 4, 6};
  constexpr double kPaper[] = {1, 1.56, 1.58, 1.61};
  constexpr double kPaperRate = 21.5;
  constexpr double kKTransformers[] = {22.7, 2 * 13.6};  // section 4.3; of 4 and 6 the text has none
  Chart chart{.title = "Throughput over that of one sequence", .x_label = "", .y_label = "", .groups = {}};
  Chart::Curve built{.name = "as built", .points = {}}, paper{.name = "paper", .origin = Origin::kCited, .points = {}};
  Chart::Curve peer{.name = "KTransformers, Q4_K_M", .origin = Origin::kCited, .points = {}};
  double single = 0;
  for (size_t i = 0; i < std::size(kBatches); ++i) {
    const auto x = static_cast<double>(i);
    MOE_ASSIGN_OR_RETURN(const double rate, Rate(context.built(), context.v3, kBatches[i], kShort));
    if (i == 0) single = rate;
    chart.groups.push_back(absl::StrFormat("batch %d", kBatches[i]));
    built.points.push_back({x, rate / single, absl::StrFormat("%.1f", rate)});
    paper.points.push_back({x, kPaper[i], absl::StrFormat("%.1f", kPaper[i] * kPaperRate)});
    if (i < std::size(kKTransformers)) {
      peer.points.push_back({x, kKTransformers[i] / kKTransformers[0], absl::StrFormat("%.1f", kKTransformers[i])});
    }
    if (i == 0) continue;
    figure.claims.push_back({.what = absl::StrFormat("batch %d over one sequence", kBatches[i]),
                             .paper = kPaper[i],
                             .section = "4.3",
                             .ours = rate / single});
    if (kBatches[i] != 2) continue;
    figure.claims.push_back(
        {.what = "tokens/s of each of two sequences", .paper = 16.8, .section = "4.3", .ours = rate / 2});
  }
  chart.curves = {std::move(built), std::move(paper), std::move(peer)};
  figure.charts.push_back(std::move(chart));
  return absl::OkStatus();
}

absl::Status AddFourBits(const OsdiContext& context, Figure& figure) {
  constexpr int64_t kLongest = 128 * kKibi;
  const roofline::ModelCount model = roofline::CountModel(context.v3, FourBitShapes(context.v3));
  Chart::Curve built{.name = "as built", .points = {}};
  const auto add = [&](int64_t tokens, double paper, double ours) {
    figure.claims.push_back({.what = absl::StrFormat("tokens/s, %dK tokens of context", tokens / kKibi),
                             .paper = paper,
                             .section = "4.4",
                             .ours = ours});
  };
  double single = 0;
  for (int64_t tokens = kShort; tokens <= kLongest; tokens *= 2) {
    MOE_ASSIGN_OR_RETURN(const double step,
                         decode::SimulateDecode(context.built(), context.v3, model, {.context = tokens}));
    built.points.push_back({static_cast<double>(tokens), 1 / step});
    if (tokens == kShort) single = 1 / step;
    if (tokens == kShort || tokens == 8 * kKibi) add(tokens, 28, 1 / step);
    if (tokens == kLongest) add(tokens, 19, 1 / step);
  }
  figure.claims.push_back({.what = "1K tokens, over KTransformers' 22 tokens/s (by 25 %)",
                           .paper = 1.25,
                           .section = "4.4",
                           .ours = single / 22});
  figure.claims.push_back({.what = "1K tokens, over ik_llama.cpp's 14 tokens/s (nearly)",
                           .paper = 2,
                           .section = "4.4",
                           .ours = single / 14});
  figure.claims.push_back({.what = "GB of DeepSeek-R1 in Q4_K_M",
                           .paper = 404,
                           .section = "4.4",
                           .ours = AllBytes(context.v3, model) / 1e9,
                           .origin = Origin::kComputed,
                           .basis = Basis::kExact});
  const double k1 = kKibi, k8 = 8 * kKibi, k128 = kLongest;
  figure.charts.push_back(
      {.title = "Tokens per second",
       .x_label = "tokens of context",
       .y_label = "tokens/s",
       .log_x = true,
       .curves = {std::move(built),
                  {.name = "paper", .origin = Origin::kCited, .points = {{k1, 28}, {k8, 28}, {k128, 19}}},
                  {.name = "KTransformers", .origin = Origin::kCited, .points = {{k1, 22}, {k8, 22}, {k128, 15}}},
                  {.name = "ik_llama.cpp", .origin = Origin::kCited, .points = {{k1, 14}, {k8, 14}}}}});
  return absl::OkStatus();
}

}  // namespace moestro::cli
