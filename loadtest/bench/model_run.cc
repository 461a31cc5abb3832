#include "loadtest/bench/model_run.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/math.h"
#include "common/base/random_bits.h"
#include "common/base/status.h"
#include "common/base/steady_seconds.h"
#include "common/kv/pages.h"
#include "common/model/binding.h"
#include "common/model/engine.h"
#include "common/model/moe/moe.h"
#include "common/platform/cpu/cpu_features.h"
#include "common/report/build_info.h"
#include "common/roofline/work_count.h"
#include "loadtest/bench/ceilings.h"
#include "loadtest/bench/memory.h"
#include "loadtest/bench/probes/select.h"
#include "loadtest/bench/timing.h"

namespace moestro::bench {
namespace {

// Tokens of one pass: activations of a longer prompt would take memory that the model needs.
constexpr int64_t kMaxPromptTokens = 8192;
constexpr RoundTimer::Options kCalibration = {.rounds = 3, .min_sample_seconds = 0.02};
// Of the weights, for finding the fastest way to read: far larger than any cache.
constexpr int64_t kCalibrationBytes = int64_t{1} << 30;

absl::Status CheckRange(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s %d: use %d to %d", flag, value, low, high));
}

absl::Status CheckOptions(const weights::ModelSpec& spec, const ModelRunOptions& options) {
  const int64_t context = spec.max_position_embeddings;
  MOE_RETURN_IF_ERROR(CheckRange("--threads", options.threads, 0, 4096));
  MOE_RETURN_IF_ERROR(CheckRange("--repetitions", options.repetitions, 1, 10000));
  MOE_RETURN_IF_ERROR(CheckRange("--prompt", options.prompt_tokens, 1, std::min(context, kMaxPromptTokens)));
  return CheckRange("--decode", options.decode_tokens, 1, context);
}

// One sequence of random tokens, over an engine.
class Sequence {
 public:
  static absl::StatusOr<std::unique_ptr<Sequence>> Create(const weights::WeightSegment& segment,
                                                          const CpuKernels& kernels, WorkerPool& pool,
                                                          const ModelRunOptions& options) {
    std::unique_ptr<Sequence> sequence(new Sequence());
    MOE_ASSIGN_OR_RETURN(sequence->engine_,
                         model::Engine::Create(segment, kernels, pool, {.max_rows = options.prompt_tokens}));
    const int64_t tokens = std::max(options.prompt_tokens, options.decode_tokens);
    const auto pages = static_cast<uint32_t>(CeilDiv(tokens, int64_t{kv::kPageTokens}));
    const kv::KvGeometry geometry = {.num_layers = segment.spec().num_layers,
                                     .kv_dim = segment.spec().kv_dim(),
                                     .kv_heads = segment.spec().num_kv_heads,
                                     .page_count = pages};
    MOE_ASSIGN_OR_RETURN(sequence->memory_, HugeBuffer::Allocate(int64_t{pages} * geometry.page_bytes()));
    sequence->numbers_.resize(pages);
    std::iota(sequence->numbers_.begin(), sequence->numbers_.end(), 0u);
    sequence->pages_ = kv::KvPages(geometry, sequence->memory_.data(), sequence->numbers_);
    return sequence;
  }

  // Random tokens at positions [begin, begin + count), with the logits of the last.
  absl::Status Forward(int64_t begin, int64_t count) {
    rows_.clear();
    const auto tokens = static_cast<uint64_t>(engine_->spec().token_count);
    for (int64_t i = 0; i < count; ++i) {
      rows_.push_back({.token = static_cast<int32_t>(random_[draws_++] % tokens),
                       .position = static_cast<int32_t>(begin + i),
                       .needs_logits = i + 1 == count});
    }
    const auto form = count == 1 ? model::MlaForm::kAbsorbed : model::MlaForm::kUnabsorbed;
    return engine_->Forward(
        {.rows = rows_, .sequences = std::span(&pages_, 1), .form = form}, [] { return absl::OkStatus(); },
        [](int64_t, std::span<const float>) {});
  }

 private:
  Sequence() = default;

  std::unique_ptr<model::Engine> engine_;
  HugeBuffer memory_;
  std::vector<uint32_t> numbers_;
  kv::KvPages pages_;
  std::vector<model::EngineRow> rows_;
  RandomWords random_{7, "model run tokens"};
  uint64_t draws_ = 0;
};

// The routed experts of all layers, and rows for them.
class Experts {
 public:
  Experts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
          WorkerPool& pool, int64_t max_rows)
      : spec_(spec),
        weights_(weights),
        context_{spec, kernels, pool},
        buffers_(spec, max_rows, pool.threads(), /*dense_width=*/0),
        x_(MakeInputs(max_rows * spec.hidden_size)),
        sums_(static_cast<size_t>(max_rows * spec.hidden_size)) {}

  // Sends each of `rows` rows to random experts of every layer. The sums are not used.
  void Run(int64_t rows) {
    for (const model::LayerWeights& layer : weights_.layers) {
      const std::vector<model::MlpWeights>& experts = layer.feed_forward.experts;
      if (experts.empty()) continue;
      Route(rows);
      model::RunExperts({context_, buffers_}, {experts, 0}, plan_, x_.data(), sums_.data());
    }
  }

 private:
  // Each set of experts is equally likely.
  void Route(int64_t rows) {
    const int64_t per_row = spec_.experts_per_token;
    choices_.clear();
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = static_cast<int64_t>(choices_.size());
      while (static_cast<int64_t>(choices_.size()) < begin + per_row) {
        const auto expert = static_cast<int32_t>(random_[draws_++] % static_cast<uint64_t>(spec_.num_experts));
        const auto chosen = std::span(choices_).subspan(static_cast<size_t>(begin));
        if (std::ranges::find(chosen, expert, &model::ExpertChoice::expert) == chosen.end()) {
          choices_.push_back({expert, 1.0f / static_cast<float>(per_row)});
        }
      }
      std::ranges::sort(choices_.begin() + begin, choices_.end(), {}, &model::ExpertChoice::expert);
    }
    plan_.Sort(choices_, per_row, spec_.num_experts);
  }

  const weights::ModelSpec& spec_;
  const model::ModelWeights& weights_;
  model::EngineContext context_;
  model::ExpertBuffers buffers_;
  std::vector<uint16_t> x_;
  std::vector<float> sums_;
  std::vector<model::ExpertChoice> choices_;
  model::ExpertPlan plan_;
  RandomWords random_{8, "model run routing"};
  uint64_t draws_ = 0;
};

double Seconds(absl::FunctionRef<void()> work) {
  const double begin = SteadySeconds();
  work();
  return SteadySeconds() - begin;
}

absl::StatusOr<ModelRepetition> Repeat(Sequence& sequence, Experts* experts, const Work& read,
                                       const ModelRunOptions& options) {
  ModelRepetition result;
  absl::Status status;
  double bytes = 0;
  const double read_seconds = Seconds([&] { bytes = read.run(); });
  result.read_bytes_per_second = bytes / read_seconds;
  result.prompt_seconds = Seconds([&] { status = sequence.Forward(0, options.prompt_tokens); });
  result.decode_seconds = Seconds([&] {
    for (int64_t i = 0; i < options.decode_tokens; ++i) status.Update(sequence.Forward(i, 1));
  });
  MOE_RETURN_IF_ERROR(status);
  if (experts != nullptr) {
    result.experts_prompt_seconds = Seconds([&] { experts->Run(options.prompt_tokens); });
    result.experts_decode_seconds = Seconds([&] {
      for (int64_t i = 0; i < options.decode_tokens; ++i) experts->Run(1);
    });
  }
  return result;
}

}  // namespace

absl::StatusOr<ModelRun> MeasureModel(const weights::WeightSegment& segment, const ModelRunOptions& options) {
  const weights::ModelSpec& spec = segment.spec();
  MOE_RETURN_IF_ERROR(CheckOptions(spec, options));
  MOE_ASSIGN_OR_RETURN(const CpuKernels kernels, SelectKernels(options.int8_activations));
  MOE_ASSIGN_OR_RETURN(const model::ModelWeights weights, model::BindWeights(segment));
  const roofline::ModelCount count = roofline::CountModel(spec, weights);
  const int64_t token_experts = spec.num_moe_layers() * spec.experts_per_token;
  ModelRun run = {
      .date = Today(),
      .machine = DescribeMachine(),
      .options = options,
      .family = spec.family,
      .layers = spec.num_layers,
      .segment_bytes = segment.header().total_bytes,
      .segment_huge_bytes = 0,  // below
      .prompt_operations = roofline::PrefillOperations(spec, model::MlaForm::kUnabsorbed, options.prompt_tokens),
      .experts_token_bytes = static_cast<double>(token_experts) * count.expert_bytes(),
      .decode_token_bytes = roofline::DecodeBytes(spec, count, options.decode_tokens / 2, 1, token_experts),
      .repetitions = {}};
  if (run.options.threads == 0) run.options.threads = run.machine.cores;
  WorkerPool pool(WorkerPool::Options{.threads = run.options.threads,
                                      .domains = std::clamp(segment.numa_domains(), 1, run.options.threads)});
  const ScopedAffinity pinned = pool.PinCaller();
  MOE_ASSIGN_OR_RETURN(const auto sequence, Sequence::Create(segment, kernels, pool, run.options));

  const CpuFeatures cpu = DetectCpuFeatures();
  const Probes& probes = SelectProbes(cpu, kernels.isa);
  Ceilings ceilings(pool, probes, SelectVectorProbes(cpu), SelectByteProbes(cpu));
  const auto* const data = reinterpret_cast<const uint8_t*>(&segment.header());  // at the segment's first byte
  const int64_t bytes = segment.header().total_bytes / 256 * 256;
  ceilings.Calibrate(RoundTimer(kCalibration), data, std::min(bytes, kCalibrationBytes));
  const Work read = ceilings.Read(data, bytes);
  std::unique_ptr<Experts> experts;
  if (spec.num_moe_layers() > 0) {
    experts = std::make_unique<Experts>(spec, weights, kernels, pool, options.prompt_tokens);
  }
  MOE_RETURN_IF_ERROR(Repeat(*sequence, experts.get(), read, options).status());
  for (int i = 0; i < options.repetitions; ++i) {
    MOE_ASSIGN_OR_RETURN(const ModelRepetition repetition, Repeat(*sequence, experts.get(), read, options));
    run.repetitions.push_back(repetition);
  }
  run.machine.kernels_isa = std::string(kernels.isa);
  run.machine.probes_isa = probes.isa;
  run.machine.dot_instruction = probes.dot_instruction;
  run.machine.read_ahead = ceilings.read_ahead();
  run.machine.pages = ReadPageUse();
  run.segment_huge_bytes = segment.memory().HugePageBytes();
  return run;
}

absl::StatusOr<ModelRun> MeasureModel(const std::string& segment_name, const ModelRunOptions& options) {
  const auto segment = weights::WeightSegment::Open(segment_name);
  MOE_RETURN_IF_ERROR(Annotate(segment.status(), absl::StrCat("--segment ", segment_name)));
  return MeasureModel(**segment, options);
}

}  // namespace moestro::bench
