#include "common/roofline/prompt_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/checkpoint/config.h"
#include "common/roofline/cpu_seconds.h"
#include "common/roofline/measure_layers.h"
#include "common/roofline/work_count.h"

namespace moestro::roofline {
namespace {

using model::MlaForm;

CpuMachine ForecastCpu() {
  return {.name = "a server",
          .sockets = 1,
          .memory_bytes_per_second = 600e9,
          .bf16_flops_per_second = 20e12,
          .int8_ops_per_second = 40e12,
          .link_bytes_per_second = 1e12,
          .fp8_linear_fraction = 0.8,
          .attention_fraction = 0.5,
          .phase_seconds = 5e-6};
}

// A forward pass that takes the time of the machine's layers, and how many of them it ran.
struct TimedForward {
  absl::Status operator()(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted) {
    const auto before = static_cast<double>(batch.rows.front().position);
    for (int64_t l = 0; l < spec.num_layers; ++l) {
      if (absl::Status status = interrupted(); !status.ok()) return status;
      now += layers.Layer(l, batch.form, before, static_cast<double>(batch.rows.size())).total();
      ++layers_run;
    }
    return absl::OkStatus();
  }

  explicit TimedForward(const weights::ModelSpec& model) : spec(model) {}
  const weights::ModelSpec& spec;
  const CpuMachine machine = ForecastCpu();
  const CpuLayers layers{machine, spec, DType::kF8E4M3};
  double now = 0;
  int64_t layers_run = 0;
};

// The whole prompt on that machine.
double InPlace(const TimedForward& machine, MlaForm form, int64_t chunk, int64_t before, int64_t rows) {
  double seconds = machine.layers.Head().total();
  for (int64_t done = 0; done < rows; done += chunk) {
    for (int64_t l = 0; l < machine.spec.num_layers; ++l) {
      const auto count = static_cast<double>(std::min(chunk, rows - done));
      seconds += machine.layers.Layer(l, form, static_cast<double>(before + done), count).total();
    }
  }
  return seconds;
}

LayerTimes Measure(TimedForward& forward, std::vector<MlaForm> forms = {MlaForm::kUnabsorbed, MlaForm::kAbsorbed},
                   double budget = 1e9) {
  return MeasureLayers(
             forward.spec, {.rows = RowsToMeasure(256), .forms = std::move(forms), .budget_seconds = budget},
             [&](const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted) {
               return forward(batch, interrupted);
             },
             [&] { return forward.now; })
      .value();
}

TEST(PromptForecastTest, AFewLayersTellWhatAWholePromptTakes) {
  for (const char* name : {"deepseek-v3", "qwen3-235b", "gpt-oss-20b"}) {
    const weights::ModelSpec spec = checkpoint::PublishedModel(name);
    TimedForward machine(spec);
    const LayerTimes times = Measure(machine);
    EXPECT_LE(machine.layers_run, 8 * (spec.first_dense_layers + 4)) << name;
    const PromptForecast forecast(spec, times);
    for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kUnabsorbed}) {
      for (const int64_t before : {0, 4096, 32768}) {
        for (const int64_t rows : {1, 8, 40, 256, 2048, 20000, 65536}) {
          const double expected = InPlace(machine, form, 256, before, rows);
          EXPECT_NEAR(forecast.InPlace(form, 256, before, rows) / expected, 1, 0.15)
              << name << ", " << rows << " rows after " << before;
        }
      }
    }
  }
}

TEST(PromptForecastTest, StopsAtItsBudget) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  TimedForward machine(spec);
  EXPECT_EQ(Measure(machine).samples.size(), 5u);
  const double whole = machine.now;
  TimedForward slow(spec);
  const LayerTimes times = Measure(slow, {MlaForm::kUnabsorbed}, /*budget=*/1e-3);
  EXPECT_EQ(times.samples.size(), 2u);
  EXPECT_LT(slow.now, whole / 2);
  EXPECT_GT(times.attention(MlaForm::kAbsorbed), 0);
  EXPECT_EQ(times.attention(MlaForm::kAbsorbed), times.attention(MlaForm::kUnabsorbed));
}

TEST(PromptForecastTest, TheErrorOfAPassIsReturned) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const auto fails = [](const model::ForwardBatch&, absl::FunctionRef<absl::Status()>) {
    return absl::UnavailableError("the device is lost");
  };
  EXPECT_EQ(MeasureLayers(spec, {.rows = {8}, .forms = {MlaForm::kAbsorbed}}, fails, [] { return 0.0; }).status(),
            absl::UnavailableError("the device is lost"));
}

// Of such times that all figures can be computed by hand: 61 layers, 3 of them dense.
LayerTimes Round() {
  LayerTimes times;
  times.samples = {{.rows = 8, .dense = 1, .moe = 2}, {.rows = 256, .dense = 1, .moe = 4}};
  times.head = 10;
  return times;
}

TEST(PromptForecastTest, DecodingSequencesBoundASteps) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const LayerTimes times = Round();
  const PromptForecast forecast(spec, times);
  const double few = 3 + 58 * 2, many = 3 + 58 * 4;
  EXPECT_DOUBLE_EQ(forecast.Pass(MlaForm::kAbsorbed, 0, 8), few);
  EXPECT_DOUBLE_EQ(forecast.Pass(MlaForm::kAbsorbed, 0, 1), few);
  EXPECT_DOUBLE_EQ(forecast.Pass(MlaForm::kAbsorbed, 0, 256), many);
  EXPECT_DOUBLE_EQ(forecast.Pass(MlaForm::kAbsorbed, 0, 504), many + 58 * 2);
  PromptForecast::Steps steps{.max_rows = 256, .least = 8, .bound_seconds = few};
  EXPECT_DOUBLE_EQ(forecast.Chunked(steps, 0, 512), 2 * many + 10);  // nobody is bounded
  steps.decoding = 1;
  // Nine rows take longer than the bound allows, and the least is taken all the same: 64 steps, each with the head.
  EXPECT_NEAR(forecast.Chunked(steps, 0, 512), 64 * (few + 58 * 2.0 / 248 + 10), 1e-6);
  steps.bound_seconds = many + 10;
  EXPECT_NEAR(forecast.Chunked(steps, 0, 510), 2 * (many + 10), 1e-6);
}

TEST(PromptForecastTest, StreamedTakesTheLongerOfCopiesAndKernels) {
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  LayerTimes times = Round();
  times.dense_load = 1;
  times.moe_load = 8;
  times.expert_load = 6;
  const PromptForecast forecast(spec, times);
  const double loads = 3 + 58 * 8, fill = loads / 61;
  const auto seconds = [&](const PromptForecast::Streams& streams, int64_t rows) {
    return forecast.Streamed(MlaForm::kUnabsorbed, streams, rows).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds({}, 256), loads + fill + 10);
  EXPECT_DOUBLE_EQ(forecast.Streamed(MlaForm::kUnabsorbed, {}, 256).slack, loads - (3 + 58 * 4));
  EXPECT_DOUBLE_EQ(seconds({.passes = 2}, 512), 2 * loads + fill + 10);
  const double long_compute = 3 + 58 * (4 + 2.0 * (8192 - 256) / 248);
  EXPECT_NEAR(seconds({}, 8192), long_compute + fill + 10, 1e-6);
  EXPECT_EQ(forecast.Streamed(MlaForm::kUnabsorbed, {}, 8192).slack, 0);
  // Two devices: half of the experts' copies; half of the kernels, unless both have the same cores.
  const ProportionalParts two = ProportionalParts::Even(2);
  const double shared_loads = 3 + 58 * 5;
  EXPECT_NEAR(seconds({.devices = two}, 256), shared_loads * (1 + 1.0 / 61) + 10, 1e-6);
  EXPECT_GT(seconds({.devices = two, .own_processors = false}, 8192), 1.9 * seconds({.devices = two}, 8192));
  // Three quarters for a device that is three times as fast as the other.
  const ProportionalParts unequal(std::vector<int64_t>{3, 1});
  EXPECT_NEAR(seconds({.devices = unequal}, 256), (3 + 58 * 6.5) * (1 + 1.0 / 61) + 10, 1e-6);
  EXPECT_NEAR(seconds({.devices = unequal}, 8192) / seconds({}, 8192 * 3 / 4), 1, 0.01);
  EXPECT_NEAR(seconds({.devices = unequal, .device = 1}, 256), (3 + 58 * 3.5) * (1 + 1.0 / 61) + 10, 1e-6);
  EXPECT_NEAR(seconds({.devices = unequal, .device = 1}, 16384) / seconds({}, 16384 / 4), 1, 0.01);
  // Exchanges cost where there are two.
  times.link_seconds = 1e-9;
  EXPECT_GT(seconds({.devices = two}, 256), shared_loads * (1 + 1.0 / 61) + 10);
}

TEST(PromptForecastTest, PointsEndWhereAPromptCannotGo) {
  const auto all =
      CostPoints(100, [](int64_t tokens) { return PromptCost::Point{.seconds = 1.0 * static_cast<double>(tokens)}; });
  std::vector<uint32_t> tokens;
  for (const PromptCost::Point& point : all) tokens.push_back(point.tokens);
  EXPECT_EQ(tokens, (std::vector<uint32_t>{16, 24, 32, 48, 64, 96, 100}));
  const auto some = CostPoints(100, [](int64_t count) -> std::optional<PromptCost::Point> {
    if (count > 48) return std::nullopt;
    return PromptCost::Point();
  });
  EXPECT_EQ(some.back().tokens, 48u);
  const auto slow =
      CostPoints(100, [](int64_t count) { return PromptCost::Point{.seconds = count > 64 ? 2 * kMaxCostSeconds : 1}; });
  EXPECT_EQ(slow.back().tokens, 64u);
  EXPECT_LE(CostPoints(int64_t{1} << 27, [](int64_t) { return PromptCost::Point(); }).size(), kMaxCostPoints);
}

TEST(PromptCostTest, BetweenPointsInProportion) {
  const PromptCost cost{.points = {{10, 1.0}, {20, 3.0}}, .seconds_per_pair = 0.5};
  EXPECT_TRUE(IsPlausible(cost));
  EXPECT_EQ(SecondsOf(cost, 1, 0), 1.0);
  EXPECT_EQ(SecondsOf(cost, 10, 0), 1.0);
  EXPECT_EQ(SecondsOf(cost, 15, 0), 2.0);
  EXPECT_EQ(SecondsOf(cost, 20, 4), 43.0);
  EXPECT_EQ(SecondsOf(cost, 21, 0), std::nullopt);
}

TEST(PromptCostTest, WhatFitsIntoTheSlackIsFree) {
  const PromptCost cost{.points = {{10, 8.0, 4.0}, {20, 8.0, 2.0}}, .seconds_per_pair = 0.01};
  EXPECT_EQ(SecondsOf(cost, 10, 30), 8.0);
  EXPECT_EQ(SecondsOf(cost, 10, 50), 9.0);
  EXPECT_DOUBLE_EQ(*SecondsOf(cost, 15, 40), 8.0 + 6.0 - 3.0);
}

TEST(PromptCostTest, NonsenseIsRefused) {
  const PromptCost good{.points = {{10, 1.0}, {20, 3.0}}};
  EXPECT_TRUE(IsPlausible(good));
  EXPECT_FALSE(IsPlausible({}));
  for (const double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 2e6}) {
    PromptCost cost = good;
    cost.points[1].seconds = seconds;
    EXPECT_FALSE(IsPlausible(cost)) << seconds;
  }
  for (const double seconds : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    PromptCost cost = good;
    cost.seconds_per_pair = seconds;
    EXPECT_FALSE(IsPlausible(cost)) << seconds;
  }
  PromptCost cost = good;
  cost.points[1].tokens = 10;
  EXPECT_FALSE(IsPlausible(cost));
  cost.points[0].tokens = 0;
  EXPECT_FALSE(IsPlausible(cost));
  cost = good;
  cost.points[1].slack = 4;
  EXPECT_FALSE(IsPlausible(cost));
  cost.points.assign(kMaxCostPoints + 1, {1, 1.0});
  EXPECT_FALSE(IsPlausible(cost));
}

}  // namespace
}  // namespace moestro::roofline
