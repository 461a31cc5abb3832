#include "services/prefill/stream/measure.h"

#include <algorithm>
#include <string_view>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/scratch_pages.h"
#include "common/roofline/work_count.h"

namespace moestro::prefill {
namespace {

// Of the layers that were done.
struct Streamed {
  roofline::LayerTimes::Sample sample;
  double dense_load = 0;
  double moe_load = 0;
  double expert_load = 0;
  double byte_seconds = 0;
  double wall_seconds = 0;
};

struct LayerSpans {
  double compute = 0;
  double load = 0;
  double expert_load = 0;
};

Streamed TimesOf(const weights::ModelSpec& spec, const PipelineReport& report, int64_t layers, int64_t rows) {
  std::vector<LayerSpans> spans(static_cast<size_t>(layers));
  double bytes = 0, load_seconds = 0;
  for (const Span& span : report.timeline.lanes[Timeline::kModel]) {
    if (span.layer < layers) spans[static_cast<size_t>(span.layer)].compute += span.end - span.begin;
  }
  for (const Span& span : report.timeline.lanes[Timeline::kLoads]) {
    bytes += static_cast<double>(span.bytes);
    load_seconds += span.end - span.begin;
    if (span.layer >= layers) continue;
    LayerSpans& layer = spans[static_cast<size_t>(span.layer)];
    layer.load += span.end - span.begin;
    if (span.name == std::string_view(engine::ModuleName(engine::ModuleKind::kExpert))) {
      layer.expert_load += span.end - span.begin;
    }
  }
  Streamed result{.sample = {.rows = rows}, .wall_seconds = report.counters.wall_seconds};
  if (bytes > 0) result.byte_seconds = load_seconds / bytes;
  for (int64_t l = 0; l < layers; ++l) {  // the last of each kind: by then the pipeline is full
    const LayerSpans& layer = spans[static_cast<size_t>(l)];
    if (spec.IsMoeLayer(l)) {
      result.sample.moe = layer.compute;
      result.moe_load = layer.load;
      result.expert_load = layer.expert_load;
    } else {
      result.sample.dense = layer.compute;
      result.dense_load = layer.load;
    }
  }
  return result;
}

// Streams the first layers of a prompt.
absl::StatusOr<Streamed> Run(StreamPrefill& prefill, const weights::ModelSpec& spec, model::MlaForm form,
                             int64_t before, int64_t rows) {
  const model::ScratchPages scratch(spec, before, rows);
  const kv::KvPages pages[] = {scratch.pages()};
  std::vector<model::EngineRow> batch;
  for (int64_t i = 0; i < rows; ++i) {
    batch.push_back(
        {.token = static_cast<int32_t>(i % spec.token_count), .position = static_cast<int32_t>(before + i)});
  }
  int64_t layers = 0;  // that are done
  const auto is_enough = [&] { return spec.num_moe_layers() > 0 ? spec.MoeLayersBelow(layers) >= 1 : layers >= 1; };
  const auto interrupted = [&] { return is_enough() ? absl::CancelledError("enough layers") : absl::OkStatus(); };
  const StreamEvents events{.on_layer = [&](IndexRange, int64_t layer) { layers = layer + 1; }};
  const absl::Status status =
      prefill.Run(batch, pages, form, interrupted, events, [](int64_t, std::span<const float>) {});
  if (!status.ok() && !(absl::IsCancelled(status) && is_enough())) return status;
  return TimesOf(spec, prefill.report(), layers, rows);
}

}  // namespace

absl::StatusOr<roofline::LayerTimes> MeasureStream(StreamPrefill& prefill, const weights::ModelSpec& spec,
                                                   const StreamMeasureOptions& options) {
  MOE_CHECK(!options.rows.empty());
  roofline::LayerTimes times{.form = options.form};
  double spent = 0;
  for (const int64_t rows : options.rows) {
    if (times.samples.size() >= 2 && spent > options.budget_seconds) break;
    MOE_ASSIGN_OR_RETURN(const Streamed run, Run(prefill, spec, options.form, 0, rows));
    spent += run.wall_seconds;
    times.samples.push_back(run.sample);
    times.dense_load = run.dense_load;
    times.moe_load = run.moe_load;
    times.expert_load = run.expert_load;
    times.link_seconds = run.byte_seconds;
  }
  const roofline::ModelCount count = roofline::CountModel(spec, DType::kF8E4M3);
  times.head = count.head.bytes * times.link_seconds;
  // As products, unless it can be measured.
  const roofline::LayerTimes::Sample& many = times.samples.back();
  const int64_t window = spec.WindowOf(spec.num_moe_layers() > 0 ? spec.MoeLayer(0) : 0);
  const double layer_operations =
      (roofline::PrefillOperations(spec, options.form, many.rows) - 2 * count.head.elements) /
      static_cast<double>(spec.num_layers);
  const double of_layer = spec.num_moe_layers() > 0 ? many.moe : many.dense;
  times.attention_seconds.fill(of_layer / layer_operations);
  const int64_t room = std::min(options.before, spec.max_position_embeddings - many.rows);
  const int64_t before = room - room % kv::kPageTokens;
  if (before <= 0 || window > 0 || spent > options.budget_seconds) return times;
  MOE_ASSIGN_OR_RETURN(const Streamed after, Run(prefill, spec, options.form, before, many.rows));
  const double seconds = (spec.num_moe_layers() > 0 ? after.sample.moe : after.sample.dense) - of_layer;
  const auto rows = static_cast<double>(many.rows);
  const double operations =
      roofline::AttentionOperations(spec, options.form, window, static_cast<double>(before), rows) -
      roofline::AttentionOperations(spec, options.form, window, 0, rows);
  times.attention_seconds.fill(std::max(0.0, seconds) / operations);
  return times;
}

}  // namespace moestro::prefill
