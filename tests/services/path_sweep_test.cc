// The path that the router chooses for DeepSeek-V3 on the paper's machine, on virtual time. What the roles would
// measure there at their start is measured on simulated devices, by their own code. What each way then takes is
// simulated for the whole prompt, by the pipelines of the roles: nothing of the prediction is in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "common/checkpoint/config.h"
#include "common/device/sim/sim_device.h"
#include "common/engine/sim/sim_decode.h"
#include "common/engine/sim/sim_prefill.h"
#include "common/roofline/cpu_seconds.h"
#include "common/roofline/measure_layers.h"
#include "common/roofline/shapes.h"
#include "services/cli/plan/hardware_file.h"
#include "services/decode/chunk_sizer.h"
#include "services/decode/overlap/hybrid_forward.h"
#include "services/decode/prompt_costs.h"
#include "services/prefill/distributed/simulate_ranks.h"
#include "services/prefill/prompt_costs.h"
#include "services/prefill/stream/measure.h"
#include "services/prefill/stream/simulate.h"
#include "services/router/admission/path_policy.h"
#include "tests/services/router/fake_node.h"

namespace moestro {
namespace {

using model::MlaForm;

constexpr int64_t kChunk = 256;     // --chunk-tokens, --max-chunk-tokens
constexpr double kBound = 0.050;    // decode's --itl-bound-ms
constexpr int64_t kMaxBatch = 6;    // --max-batch
constexpr int64_t kContext = 1024;  // of sequences that decode

const weights::ModelSpec& Spec() {
  static const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  return spec;
}

const device::HardwareSpec& Gpu() {
  static const device::HardwareSpec hardware =
      cli::ReadHardwareFile("deploy/hardware/rtx5090-epyc9355.json").value().built;
  return hardware;
}

// The CPUs of that machine, or half of their cores: its memory, and the rates of 2 cores of the same kind that were
// measured, times 32 (deploy/hardware/epyc-zen5-2-cores.json).
roofline::CpuMachine Cpu(double part) {
  return {.name = "2x EPYC 9355",
          .sockets = 1,
          .memory_bytes_per_second = part * Gpu().cpu_memory_bytes_per_second,
          .bf16_flops_per_second = part * 32 * 913e9,
          .int8_ops_per_second = part * 64 * 913e9,
          .link_bytes_per_second = 1e12,
          .memory_fraction = Gpu().cpu_memory_fraction,
          .fp8_linear_fraction = 0.92,
          .attention_fraction = 0.74,
          .phase_seconds = 5e-6};
}

// Decode's hybrid step, whose routed experts are read and then multiplied by the CPU.
class SimulatedDecode {
 public:
  SimulatedDecode() : experts_(*this) {
    forward_ = decode::HybridForward::Create(
                   Spec(), *device_, compute_, experts_,
                   {.max_rows = kChunk + kMaxBatch, .split = [](const auto& batch) { return batch.runs.size(); }})
                   .value();
  }

  double Now() const { return device_->Now(); }
  decode::HybridForward& forward() { return *forward_; }

  // Seconds of a step with `rows` rows of a prompt and one of each of `decoding` sequences.
  double Step(int64_t before, int64_t rows, int64_t decoding) {
    std::vector<model::EngineRow> batch;
    const auto add = [&](int64_t position, int64_t sequence) {
      batch.push_back({.position = static_cast<int32_t>(position), .sequence = static_cast<int32_t>(sequence)});
    };
    for (int64_t i = 0; i < rows; ++i) add(before + i, 0);
    for (int64_t i = 1; i <= decoding; ++i) add(kContext, i);
    const std::vector<uint32_t> list(static_cast<size_t>((before + rows + kContext) / kv::kPageTokens + 1));
    const kv::KvGeometry geometry{.num_layers = Spec().num_layers,
                                  .kv_dim = Spec().kv_dim(),
                                  .kv_heads = Spec().num_kv_heads,
                                  .page_count = std::ssize(list)};
    const std::vector<kv::KvPages> pages(static_cast<size_t>(decoding + 1), kv::KvPages(geometry, nullptr, list));
    const double begin = Now();
    EXPECT_TRUE(forward_
                    ->Forward(
                        {batch, pages}, [] { return absl::OkStatus(); }, [](int64_t, std::span<const float>) {})
                    .ok());
    return Now() - begin;
  }

 private:
  class Experts final : public engine::RoutedExperts {
   public:
    explicit Experts(SimulatedDecode& owner) : owner_(owner) {}
    absl::Status Run(int64_t layer, int64_t rows, const engine::ExpertIo&) override {
      const auto experts = static_cast<double>(Spec().num_experts),
                 taken = static_cast<double>(Spec().experts_per_token);
      const roofline::WeightCount& expert = owner_.count_.layers[static_cast<size_t>(layer)].expert;
      const double met = experts * (1 - std::pow(1 - taken / experts, static_cast<double>(rows)));
      const double read = met * expert.bytes / (owner_.cpu_.memory_bytes_per_second * owner_.cpu_.memory_fraction);
      const double multiply = 2 * static_cast<double>(rows) * taken * expert.elements /
                              (owner_.cpu_.bf16_flops_per_second * owner_.cpu_.fp8_linear_fraction);
      owner_.device_->AdvanceTo(owner_.Now() + read + multiply);
      return absl::OkStatus();
    }

   private:
    SimulatedDecode& owner_;
  };

  static device::HardwareSpec DecodeHardware() {
    device::HardwareSpec hardware = Gpu();
    hardware.memory_fraction = hardware.decode_memory_fraction;
    return hardware;
  }

  const roofline::CpuMachine cpu_ = Cpu(1);
  const roofline::ModelCount count_ = roofline::CountModel(Spec(), DType::kF8E4M3);
  const std::unique_ptr<device::Device> device_ = device::NewSimDevice(DecodeHardware());
  engine::SimDecode compute_{*device_, Spec(), count_};
  Experts experts_;
  std::unique_ptr<decode::HybridForward> forward_;
};

const decode::ChunkSizer::Options kChunks{.bound_seconds = kBound, .max_rows = kChunk};
const prefill::MlaFormPolicy kForm;
const prefill::MemoryLimits kLimits;

// --- what the roles measure at their start ---

std::vector<PromptCost> DecodeCosts() {
  SimulatedDecode decode;
  const roofline::LayerTimes times =
      roofline::MeasureLayers(
          Spec(), {.rows = roofline::RowsToMeasure(kChunk), .forms = {MlaForm::kAbsorbed}},
          [&](const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted) {
            return decode.forward().Forward(batch, interrupted, [](int64_t, std::span<const float>) {});
          },
          [&] { return decode.Now(); })
          .value();
  return decode::CostsOf(Spec(), times, kChunks, kMaxBatch, /*alone=*/false);
}

PromptCost InPlaceCost(double part, bool alone) {
  const roofline::CpuMachine machine = Cpu(part);
  const roofline::CpuLayers layers(machine, Spec(), DType::kF8E4M3);
  double now = 0;
  const auto forward = [&](const model::ForwardBatch& batch,
                           absl::FunctionRef<absl::Status()> interrupted) -> absl::Status {
    for (int64_t l = 0; l < Spec().num_layers; ++l) {
      if (absl::Status status = interrupted(); !status.ok()) return status;
      now += layers.Layer(l, batch.form, batch.rows.front().position, static_cast<double>(batch.rows.size())).total();
    }
    return absl::OkStatus();
  };
  const roofline::LayerTimes times =
      roofline::MeasureLayers(
          Spec(), {.rows = roofline::RowsToMeasure(kChunk), .forms = {MlaForm::kUnabsorbed, MlaForm::kAbsorbed}},
          forward, [&] { return now; })
          .value();
  return prefill::InPlaceCost(Spec(), times, kForm, kChunk, alone);
}

std::vector<PromptCost> StreamedCosts() {
  const model::ModelWeights weights = roofline::ShapesOnly(Spec(), DType::kF8E4M3);
  const std::unique_ptr<device::Device> device = device::NewSimDevice(Gpu());
  engine::SimPrefill compute(Spec(), weights);
  prefill::StreamPrefill stream(*device, Spec(), weights, compute, kLimits);
  const roofline::LayerTimes times = prefill::MeasureStream(stream, Spec(), {.rows = {256, 2048}}).value();
  std::vector<PromptCost> costs;
  for (const bool alone : {false, true}) {
    costs.push_back(prefill::StreamedCost(
        Spec(), std::span(&times, 1), alone, [&](int64_t tokens) -> std::optional<prefill::StreamShape> {
          const MlaForm form = kForm.ForPrompt(tokens);
          if (alone) return prefill::StreamShape{form, {.devices = ProportionalParts::Even(2)}};
          const auto plan = stream.Plan(tokens, form);
          if (!plan.ok()) return std::nullopt;
          return prefill::StreamShape{form, {.passes = plan->passes}};
        }));
  }
  return costs;
}

// --- what each way takes ---

// As decode computes it, with a chunk sizer that begins with this prompt. Gives up when it takes longer than `most`.
double Chunked(int64_t tokens, int64_t cached, int64_t decoding, double most) {
  SimulatedDecode decode;
  decode::ChunkSizer sizer(kChunks);
  for (int i = 0; i < 4 && decoding > 0; ++i) sizer.Note(decoding, 0, decode.Step(kContext, 1, decoding - 1));
  double seconds = 0;
  for (int64_t done = 0; done < tokens && seconds < most;) {
    const int64_t rows = std::min(sizer.Choose(decoding), tokens - done);
    const double step = decode.Step(cached + done, rows, decoding);
    sizer.Note(decoding, rows, step);
    seconds += step;
    done += rows;
  }
  return seconds;
}

double InPlace(int64_t tokens, int64_t cached, double part) {
  const roofline::CpuMachine machine = Cpu(part);
  const roofline::CpuLayers layers(machine, Spec(), DType::kF8E4M3);
  const MlaForm form = kForm.ForPrompt(cached + tokens);
  double seconds = layers.Head().total();
  for (int64_t done = 0; done < tokens; done += kChunk) {
    for (int64_t l = 0; l < Spec().num_layers; ++l) {
      seconds +=
          layers
              .Layer(l, form, static_cast<double>(cached + done), static_cast<double>(std::min(kChunk, tokens - done)))
              .total();
    }
  }
  return seconds;
}

double Streamed(int64_t tokens, int64_t cached, int devices) {
  const MlaForm form = kForm.ForPrompt(cached + tokens);
  if (devices == 1) {
    return prefill::SimulatePrefill(Gpu(), Spec(), DType::kF8E4M3, form, tokens, kLimits, {}, cached)
        .value()
        .report.counters.wall_seconds;
  }
  return prefill::SimulateRanks(Gpu(), Spec(), DType::kF8E4M3, form, tokens, kLimits, devices,
                                roofline::ExpertParallelism::kSmall, {}, cached)
      .value()
      .wall_seconds;
}

TEST(PathSweepTest, TheChosenPathIsNearlyTheSoonest) {
  std::vector<PromptCost> prefill_costs = {InPlaceCost(0.5, false), InPlaceCost(1, true)};
  for (const PromptCost& cost : StreamedCosts()) prefill_costs.push_back(cost);
  const std::vector<PromptCost> decode_costs = DecodeCosts();
  double worst = 1, worst_of_paper = 1;
  std::printf("  tokens  cached  decoding  chunked  in place  streamed  chosen    over best  the paper's\n");
  for (const int64_t decoding : {0, 1, 6}) {
    const bool idle = decoding == 0;
    for (const int64_t tokens : {64, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768, 65536}) {
      for (const int64_t cached : {int64_t{0}, tokens}) {
        const double in_place = InPlace(tokens, cached, idle ? 1 : 0.5);
        const double streamed = Streamed(tokens, cached, idle ? 2 : 1);
        const double chunked = Chunked(tokens, cached, decoding, 3 * std::min(in_place, streamed));
        const double taken[] = {chunked, in_place, streamed};
        const double best = *std::ranges::min_element(taken);

        testing::FakeRequestClock clock;
        router::PathPolicy policy({.predicted = true}, clock);
        policy.SetCosts(router::Role::kDecode, decode_costs);
        policy.SetCosts(router::Role::kPrefill, prefill_costs);
        std::vector<router::PathPolicy::Decision> others;
        for (int64_t i = 0; i < decoding; ++i) {
          others.push_back(policy.Choose(1, /*prefill_up=*/true));
          if (others.back().choice.path != PrefillPath::kChunked) others.back().work.BeginDecode();
          (void)others.back().work.NoteFirstToken(false);
        }
        const router::PathChoice choice =
            policy.Choose(static_cast<uint32_t>(tokens), true, static_cast<uint32_t>(cached)).choice;
        ASSERT_TRUE(choice.way.has_value()) << choice.load;
        const double over = taken[static_cast<size_t>(*choice.way)] / best;
        const double paper = (tokens < 2048 ? chunked : streamed) / best;
        std::printf("%8ld %7ld %9ld %8.2f %9.2f %9.2f  %-9s %9.2f %12.2f\n", tokens, cached, decoding, chunked,
                    in_place, streamed, WayName(*choice.way), over, paper);
        worst = std::max(worst, over);
        worst_of_paper = std::max(worst_of_paper, paper);
        EXPECT_LE(over, 1.1) << tokens << " tokens after " << cached << ", " << decoding
                             << " decoding: " << choice.load;
      }
    }
  }
  std::printf("worst: %.2f of the soonest; by the paper's numbers: %.2f (or more)\n", worst, worst_of_paper);
  EXPECT_GT(worst_of_paper, worst);
}

}  // namespace
}  // namespace moestro
