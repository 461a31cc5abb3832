#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/config.h"
#include "common/roofline/intensity.h"
#include "services/cli/paper/moe_lightning/figures.h"
#include "services/cli/paper/moe_lightning/published.h"

namespace moestro::cli {

// Bytes over a rate. The rate is the mean of those of the largest micro-batch.
void AddLatencies(const MoeLightningContext& context, Figure& figure) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("mixtral-8x7b");
  const roofline::WeightCount expert = roofline::CountModel(spec, DType::kBF16).layers[0].expert;
  const auto attention = [&](double rows, double positions) {
    return roofline::DecodeAttention(spec, rows, positions).bytes;
  };
  const auto experts = [&](double rows) { return roofline::DecodeExperts(spec, expert, rows).bytes; };
  const PublishedLatency& fitted = PublishedLatencies().back();
  constexpr size_t kContexts = std::size(kFig9Contexts);
  double copy_rate = 0, attention_rate = 0;
  for (size_t i = 0; i < kContexts; ++i) {
    const double positions = fitted.micro_batch * kFig9Contexts[i];
    copy_rate += roofline::KvBytes(spec, positions) / fitted.cache_copy[i] / kContexts;
    attention_rate += attention(fitted.micro_batch, kFig9Contexts[i]) / fitted.host_attention[i] / kContexts;
  }
  const double experts_rate = experts(fitted.micro_batch) / fitted.experts;
  context.notes.push_back(
      absl::StrFormat("Figure 9: %.2f GB/s of copies, %.1f GB/s of attention and %.0f GB/s of experts fitted.",
                      copy_rate / 1e9, attention_rate / 1e9, experts_rate / 1e9));
  const auto add = [&](const PublishedLatency& of, const std::string& what, double paper, double ours) {
    figure.claims.push_back({.what = absl::StrFormat("ms, %s, micro-batch %g", what, of.micro_batch),
                             .paper = 1e3 * paper,
                             .section = "Fig. 9",
                             .ours = 1e3 * ours,
                             .origin = Origin::kComputed,
                             .basis = &of == &fitted ? Basis::kFitted : Basis::kPredicted});
  };
  for (const PublishedLatency& of : PublishedLatencies()) {
    Chart chart{.title = absl::StrFormat("Figure 9, micro-batch %g", of.micro_batch),
                .x_label = "positions",
                .y_label = "ms",
                .curves = {{.name = "copy of the cache", .origin = Origin::kCited, .points = {}},
                           {.name = "attention on the host", .origin = Origin::kCited, .points = {}},
                           {.name = "copy", .origin = Origin::kComputed, .points = {}},
                           {.name = "attention", .origin = Origin::kComputed, .points = {}}}};
    for (size_t i = 0; i < kContexts; ++i) {
      const double positions = kFig9Contexts[i];
      const double copy = roofline::KvBytes(spec, of.micro_batch * positions) / copy_rate;
      const double on_host = attention(of.micro_batch, positions) / attention_rate;
      add(of, absl::StrFormat("copy of %g positions", positions), of.cache_copy[i], copy);
      add(of, absl::StrFormat("attention to %g positions", positions), of.host_attention[i], on_host);
      chart.curves[0].points.push_back({positions, 1e3 * of.cache_copy[i]});
      chart.curves[1].points.push_back({positions, 1e3 * of.host_attention[i]});
      chart.curves[2].points.push_back({positions, 1e3 * copy});
      chart.curves[3].points.push_back({positions, 1e3 * on_host});
    }
    add(of, "experts", of.experts, experts(of.micro_batch) / experts_rate);
    figure.charts.push_back(std::move(chart));
  }
}

}  // namespace moestro::cli
