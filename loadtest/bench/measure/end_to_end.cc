// The engine itself over a model larger than the caches: a prompt, and one token after another.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "common/kv/pages.h"
#include "common/model/engine.h"
#include "common/platform/numa.h"
#include "common/platform/process_memory.h"
#include "common/report/number.h"
#include "common/roofline/work_count.h"
#include "loadtest/bench/benchmark.h"
#include "loadtest/bench/random_segment.h"

namespace moestro::bench {
namespace {

constexpr double kPrefillTarget = 0.85;  // of the dot-product rate
constexpr double kDecodeTarget = 0.90;   // of read bandwidth

// Sequences decoded together, as in the paper's Fig. 16. Its speed-ups are a different quantity: two sequences share
// few of DeepSeek-V3's 256 experts, but here sequences share most experts of a smaller model.
constexpr int64_t kBatches[] = {2, 4, 6};
constexpr int64_t kLargestBatch = 6;

// A model, an engine over it and the KV pages of kLargestBatch sequences.
class BenchModel {
 public:
  static absl::StatusOr<std::unique_ptr<BenchModel>> Create(BenchContext& context) {
    const ModelSizes& sizes = context.preset.model;
    MOE_ASSIGN_OR_RETURN(const AvailableMemory available, ReadAvailableMemory());
    MOE_ASSIGN_OR_RETURN(const weights::ModelSpec spec,
                         FitExperts(sizes.spec, std::min(sizes.memory_bytes, available.bytes / 2)));
    std::unique_ptr<BenchModel> model(new BenchModel());
    MOE_ASSIGN_OR_RETURN(model->weights_, MakeRandomSegment(context.pool, spec));
    MOE_ASSIGN_OR_RETURN(model->engine_, model->CreateEngine(context, context.pool));
    const int64_t tokens = std::max(sizes.prefill_tokens, sizes.decode_context + 1);
    const auto pages = static_cast<uint32_t>(CeilDiv(tokens, kv::kPageTokens));
    const kv::KvGeometry geometry = {.num_layers = spec.num_layers,
                                     .kv_dim = spec.kv_dim(),
                                     .kv_heads = spec.num_kv_heads,
                                     .page_count = pages * kLargestBatch};
    MOE_ASSIGN_OR_RETURN(model->pages_, HugeBuffer::Allocate(geometry.page_count * geometry.page_bytes()));
    model->page_list_.resize(static_cast<size_t>(geometry.page_count));
    std::iota(model->page_list_.begin(), model->page_list_.end(), 0u);
    for (int64_t i = 0; i < kLargestBatch; ++i) {
      model->sequences_.emplace_back(geometry, model->pages_.data(),
                                     std::span(model->page_list_).subspan(i * pages, pages));
    }
    return model;
  }

  // Another engine over the model, on another pool of workers.
  absl::StatusOr<std::unique_ptr<model::Engine>> CreateEngine(const BenchContext& context, WorkerPool& pool) {
    return model::Engine::Create(
        *weights_.segment, context.kernels, pool,
        {.max_rows = std::max(context.preset.model.prefill_tokens, kLargestBatch),
         .on_routing = [this](const model::LayerRouting& routing) { CountExperts(routing.choices); }});
  }

  // Computes random tokens at positions [begin, begin + count) of each of the first `sequences` sequences, with logits
  // of the last. Keeps the first error.
  void Forward(int64_t begin, int64_t count, model::MlaForm form, int64_t sequences = 1) {
    Forward(*engine_, begin, count, form, sequences);
  }
  void Forward(model::Engine& engine, int64_t begin, int64_t count, model::MlaForm form, int64_t sequences = 1) {
    std::vector<model::EngineRow> rows;
    for (int64_t i = 0; i < sequences * count; ++i) {
      rows.push_back({.token = static_cast<int32_t>(random_[draws_++] % static_cast<uint64_t>(spec().token_count)),
                      .position = static_cast<int32_t>(begin + i % count),
                      .sequence = static_cast<int32_t>(i / count),
                      .needs_logits = (i + 1) % count == 0});
    }
    experts_ = 0;
    const absl::Status done = engine.Forward(
        {.rows = rows, .sequences = sequences_, .form = form}, [] { return absl::OkStatus(); },
        [](int64_t, std::span<const float>) {});
    if (status_.ok()) status_ = done;
  }

  // Distinct routed experts of the last pass, summed over its layers.
  int64_t experts() const { return experts_; }

  const weights::ModelSpec& spec() const { return weights_.segment->spec(); }
  const HugeBuffer& memory() const { return weights_.memory; }
  const absl::Status& status() const { return status_; }
  std::string ToString() const {
    return absl::StrFormat("DeepSeek-V3 geometry, %d layers of which %d dense, %d experts, %d vocabulary rows, %s",
                           spec().num_layers, spec().num_layers - spec().num_moe_layers(), spec().num_experts,
                           spec().vocab_size, HumanBytes(memory().size()));
  }

 private:
  BenchModel() = default;

  void CountExperts(std::span<const model::ExpertChoice> choices) {
    std::vector<int32_t> ids;
    for (const model::ExpertChoice& choice : choices) ids.push_back(choice.expert);
    std::ranges::sort(ids);
    experts_ += std::unique(ids.begin(), ids.end()) - ids.begin();
  }

  RandomSegment weights_;
  std::unique_ptr<model::Engine> engine_;
  HugeBuffer pages_;
  std::vector<uint32_t> page_list_;
  std::vector<kv::KvPages> sequences_;
  int64_t experts_ = 0;
  RandomWords random_{5, "bench tokens"};
  uint64_t draws_ = 0;
  absl::Status status_;
};

// Created by the first benchmark that needs it, freed after the last.
class SharedModel {
 public:
  absl::StatusOr<BenchModel*> Get(BenchContext& context) {
    if (model_ == nullptr) {
      context.weights.Release();
      MOE_ASSIGN_OR_RETURN(model_, BenchModel::Create(context));
    }
    return model_.get();
  }

 private:
  std::unique_ptr<BenchModel> model_;
};

absl::StatusOr<Findings> MeasurePrefill(BenchContext& context, BenchModel& model, model::MlaForm form) {
  const int64_t tokens = context.preset.model.prefill_tokens;
  const double operations = roofline::PrefillOperations(model.spec(), form, tokens);
  const Work works[] = {context.ceilings.Dot(), {.run = [&] {
                          model.Forward(0, tokens, form);
                          return operations;
                        }}};
  const auto series = context.timer.Measure(works);
  MOE_RETURN_IF_ERROR(model.status());
  Row row = MakeRow(absl::StrFormat("prefill of %d tokens, MLA %s", tokens,
                                    form == model::MlaForm::kAbsorbed ? "absorbed" : "un-absorbed"),
                    context.pool.threads(), "GFLOP/s", series[1],
                    absl::StrFormat("%s; one forward pass; 2 operations for each multiplication of all linear layers, "
                                    "the chosen experts of every token, attention and the last token's head",
                                    model.ToString()));
  CompareRates(series[1], kDotRate, series[0], kPrefillTarget, &row);
  return OneRow(std::move(row));
}

absl::StatusOr<Findings> MeasureDecode(BenchContext& context, BenchModel& model) {
  const int64_t position = context.preset.model.decode_context;
  model.Forward(0, position, model::MlaForm::kAbsorbed);
  const weights::ModelSpec& spec = model.spec();
  const int64_t experts = spec.num_moe_layers() * spec.experts_per_token;
  const double bytes = roofline::DecodeBytes(spec, position, 1, experts);
  const int64_t window = std::min(model.memory().size(), context.preset.pool_bytes) / 256 * 256;
  const Work works[] = {context.ceilings.Read(model.memory().data(), window), {.run = [&] {
                          model.Forward(position, 1, model::MlaForm::kAbsorbed);
                          return bytes;
                        }}};
  const auto series = context.timer.Measure(works);
  MOE_RETURN_IF_ERROR(model.status());
  Row row = MakeRow(
      absl::StrFormat("decode of one token after %d", position), context.pool.threads(), "GB/s", series[1],
      absl::StrFormat("%s; another random token each time; bytes of the weights that it meets (attention, "
                      "dense MLP or shared expert, router and its %d experts in each MoE layer, head) and "
                      "of the KV, %s a token; scales are not counted",
                      model.ToString(), model.spec().experts_per_token, HumanBytes(static_cast<int64_t>(bytes))));
  CompareRates(series[1], kReadBandwidth, series[0], kDecodeTarget, &row);
  return OneRow(std::move(row));
}

// Compares several sequences in one step with reading the data they touch, and with one sequence at a time.
absl::StatusOr<Findings> MeasureBatch(BenchContext& context, BenchModel& model, int64_t sequences) {
  const int64_t position = context.preset.model.decode_context;
  for (int64_t done = 0; done < position; ++done) model.Forward(done, 1, model::MlaForm::kAbsorbed, sequences);
  const int64_t window = std::min(model.memory().size(), context.preset.pool_bytes) / 256 * 256;
  const auto step = [&model, position](int64_t count) {
    model.Forward(position, 1, model::MlaForm::kAbsorbed, count);
    return roofline::DecodeBytes(model.spec(), position, count, model.experts());
  };
  const Work works[] = {context.ceilings.Read(model.memory().data(), window),
                        {.run = [&] { return step(sequences); }},
                        {.run = [&] { return step(1); }}};
  const auto series = context.timer.Measure(works);
  MOE_RETURN_IF_ERROR(model.status());
  Row bytes =
      MakeRow(absl::StrFormat("decode of %d sequences together", sequences), context.pool.threads(), "GB/s", series[1],
              "as decode of one token, with the different experts that the step's tokens take, counted in "
              "every step, and the KV of every sequence");
  CompareRates(series[1], kReadBandwidth, series[0], kDecodeTarget, &bytes);
  Row tokens =
      MakeRow(absl::StrFormat("decode of %d sequences together: tokens a second, over one sequence", sequences),
              context.pool.threads(), "GB/s", series[1], "the same steps");
  CompareSpeeds(series[1], "one sequence", series[2], std::nullopt, &tokens);
  for (double* ratio : {&tokens.ratio.median, &tokens.ratio.min, &tokens.ratio.max}) {
    *ratio *= static_cast<double>(sequences);  // from steps to tokens
  }
  Findings findings = OneRow(std::move(bytes));
  findings.rows.push_back(std::move(tokens));
  return findings;
}

// A step's activations, which each domain's workers write in part, and of which each reads what the others wrote.
class Exchange {
 public:
  Exchange(const weights::ModelSpec& spec, WorkerPool& pool)
      : pool_(pool), layers_(spec.num_layers), domains_(pool.domains()) {
    // Of a layer: attention's outputs, gate times up of the experts, both BF16, and twice the residual, F32.
    const int64_t inner = spec.moe_intermediate_size * spec.experts_per_token + spec.shared_intermediate_size();
    const int64_t bytes = spec.num_heads * spec.v_head_dim * 2 + inner * 2 + spec.hidden_size * 2 * 4;
    domain_words_ = CeilDiv(bytes / 8, domains_);
    activations_.resize(static_cast<size_t>(domain_words_ * domains_));
    sums_.resize(static_cast<size_t>(pool.threads()) * kLine);
  }

  // Returns the bytes that domains read from each other.
  double Run() {
    const int64_t parts = CeilDiv(pool_.threads(), domains_);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      pool_.RunPerDomain([&](int) { return parts; },
                         [&](int domain, int64_t part, int) {
                           const IndexRange words = EvenPart(domain_words_, part, parts);
                           for (uint64_t& word : Of(domain).subspan(words.begin, words.size())) ++word;
                         });
      pool_.RunPerDomain([&](int) { return parts; },
                         [&](int domain, int64_t, int worker) {
                           uint64_t sum = 0;
                           for (int other = 0; other < domains_; ++other) {
                             if (other == domain) continue;
                             for (const uint64_t word : Of(other)) sum += word;
                           }
                           sums_[static_cast<size_t>(worker) * kLine] += sum;
                         });
    }
    return static_cast<double>(layers_ * domains_ * (domains_ - 1) * domain_words_ * 8);
  }

 private:
  static constexpr size_t kLine = 8;  // words

  std::span<uint64_t> Of(int domain) {
    return std::span(activations_).subspan(static_cast<size_t>(domain * domain_words_), domain_words_);
  }

  WorkerPool& pool_;
  int64_t layers_;
  int64_t domains_;
  int64_t domain_words_;
  std::vector<uint64_t> activations_;
  std::vector<uint64_t> sums_;  // a line for each worker
};

// A decoded token with the work cut by NUMA domain, and what domains read from each other.
absl::StatusOr<Findings> MeasureDomains(BenchContext& context, BenchModel& model) {
  const int threads = context.pool.threads(), nodes = static_cast<int>(ReadNumaNodes().size());
  const int domains = std::max(2, nodes);
  if (threads < domains) {
    return absl::FailedPreconditionError(absl::StrFormat("%d domains need as many threads", domains));
  }
  WorkerPool pool({.threads = threads, .domains = domains});
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Engine> engine, model.CreateEngine(context, pool));
  const int64_t position = context.preset.model.decode_context;
  model.Forward(0, position, model::MlaForm::kAbsorbed);
  Exchange exchange(model.spec(), pool);
  const auto bytes =
      roofline::DecodeBytes(model.spec(), position, 1, model.spec().num_moe_layers() * model.spec().experts_per_token);
  const Work works[] = {{.run =
                             [&] {
                               model.Forward(position, 1, model::MlaForm::kAbsorbed);
                               return bytes;
                             }},
                        {.run =
                             [&] {
                               model.Forward(*engine, position, 1, model::MlaForm::kAbsorbed);
                               return bytes;
                             }},
                        {.run = [&] { return exchange.Run(); }}};
  const auto series = context.timer.Measure(works);
  MOE_RETURN_IF_ERROR(model.status());
  const std::string of = absl::StrFormat("%d domains on %d NUMA node%s", domains, nodes, nodes == 1 ? "" : "s");
  Row cut = MakeRow("decode of one token, " + of, threads, "GB/s", series[1], "as decode of one token");
  CompareSpeeds(series[1], "one domain", series[0], std::nullopt, &cut);
  Row share =
      MakeRow("exchange between " + of, threads, "GB/s", series[2],
              "what domains read of each other in a step, done alone: each domain's workers write their part of "
              "a layer's activations, then read those of the others, layer by layer. The ratio is how often it "
              "fits into decode of one token; the article's 3 % would be 33");
  CompareSpeeds(series[2], "decode of one token", series[1], std::nullopt, &share);
  Findings findings = OneRow(std::move(cut));
  findings.rows.push_back(std::move(share));
  return findings;
}

}  // namespace

void AddEndToEndBenchmarks(const Preset&, std::vector<Benchmark>& benchmarks) {
  const auto shared = std::make_shared<SharedModel>();
  const auto add = [&](const std::string& name, auto measure) {
    benchmarks.push_back({"end-to-end", name, [shared, measure](BenchContext& context) -> absl::StatusOr<Findings> {
                            MOE_ASSIGN_OR_RETURN(BenchModel* const model, shared->Get(context));
                            return measure(context, *model);
                          }});
  };
  add("prefill-unabsorbed", [](BenchContext& context, BenchModel& model) {
    return MeasurePrefill(context, model, model::MlaForm::kUnabsorbed);
  });
  add("prefill-absorbed", [](BenchContext& context, BenchModel& model) {
    return MeasurePrefill(context, model, model::MlaForm::kAbsorbed);
  });
  add("decode", MeasureDecode);
  for (const int64_t sequences : kBatches) {
    add(absl::StrFormat("decode-%d", sequences),
        [sequences](BenchContext& context, BenchModel& model) { return MeasureBatch(context, model, sequences); });
  }
  add("numa", MeasureDomains);
}

}  // namespace moestro::bench
