// Sequences with random keys and values in their pages, steps of them, and whether a forward pass has the engine's
// bits.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/tensor/dtype.h"
#include "services/decode/forward_pass.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::decode {

inline constexpr int64_t kMaxBatch = 8;
inline constexpr int64_t kMaxRows = 32;
inline constexpr int32_t kNanToken = 3;

// Holds any thread that calls it up for up to 100 us, differently each time.
class RandomDelays {
 public:
  void operator()() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(Draw());
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }

 private:
  int Draw() {
    std::lock_guard lock(mutex_);
    return static_cast<int>(random_() % 100);
  }
  std::mutex mutex_;
  std::mt19937 random_{1};
};

class StepTest : public testing::Test {
 protected:
  explicit StepTest(const weights::ModelSpec& small = SmallSpec())
      : StepTest(SyntheticOptions{.spec = small, .nan_token = kNanToken}) {}
  explicit StepTest(const SyntheticOptions& options) : model_(MakeSyntheticSegment(options)) {
    for (int i = 0; i < kMaxBatch; ++i) {
      sequences_.emplace_back(spec(), kTokens);
      pages_.push_back(sequences_.back().pages());
      FillKv(pages_.back(), Length(i));
    }
  }
  const weights::ModelSpec& spec() const { return model_.segment->spec(); }

  // The next tokens of the first `batch` sequences: one each, and `chunk` of the last one.
  std::vector<model::EngineRow> Step(int64_t batch, int64_t chunk = 1) const {
    std::vector<model::EngineRow> rows;
    for (int32_t i = 0; i < batch; ++i) {
      const auto position = static_cast<int32_t>(Length(i));
      for (int32_t j = 0; j < (i + 1 == batch ? chunk : 1); ++j) {
        rows.push_back({.token = 30 + i + j, .position = position + j, .sequence = i, .needs_logits = true});
      }
    }
    return rows;
  }
  // Cached numbers of the step's tokens.
  std::vector<uint16_t> Kv(const std::vector<model::EngineRow>& rows) const {
    std::vector<uint16_t> numbers;
    for (const model::EngineRow& row : rows) {
      for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
        std::vector<uint16_t> entry(static_cast<size_t>(spec().kv_dim()));
        pages_[static_cast<size_t>(row.sequence)].Read(layer, row.position, entry.data());
        numbers.insert(numbers.end(), entry.begin(), entry.end());
      }
    }
    return numbers;
  }
  void ForgetKv(const std::vector<model::EngineRow>& rows) const {
    const std::vector<uint16_t> nan(static_cast<size_t>(spec().kv_dim()), 0xffff);
    for (const model::EngineRow& row : rows) {
      for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
        pages_[static_cast<size_t>(row.sequence)].Store(layer, row.position, nan.data());
      }
    }
  }
  absl::Status Run(ForwardPass& forward, const std::vector<model::EngineRow>& rows, model::Logits* logits) const {
    logits->clear();
    return forward.Forward({rows, pages_}, model::NeverInterrupted, [&](int64_t row, std::span<const float> values) {
      EXPECT_EQ(row, std::ssize(*logits));
      logits->emplace_back(values.begin(), values.end());
    });
  }
  void ExpectTheEnginesBits(ForwardPass& forward, const std::vector<model::EngineRow>& rows, const std::string& what) {
    const Outcome& expected = EnginesOutcome(rows);
    ForgetKv(rows);
    model::Logits actual;
    const absl::Status status = Run(forward, rows, &actual);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(model::SameBits(actual, expected.logits)) << what;
    EXPECT_EQ(Kv(rows), expected.kv) << what;
  }

 private:
  struct Outcome {
    model::Logits logits;
    std::vector<uint16_t> kv;
  };
  // Cached tokens of a sequence.
  static int64_t Length(int64_t sequence) { return 20 + 13 * sequence; }
  // With a variance of one, as norms leave it: computed by the engine they would take longer than most tests.
  void FillKv(const kv::KvPages& pages, int64_t tokens) {
    std::vector<uint16_t> entries(static_cast<size_t>(tokens * spec().kv_dim()));
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      for (uint16_t& number : entries) number = ToBf16((static_cast<float>(random_() % 256) - 127.5f) / 74);
      pages.StoreRows(layer, {0, tokens}, entries.data());
    }
  }
  // Once for each step: the same rows have the same bits.
  const Outcome& EnginesOutcome(const std::vector<model::EngineRow>& rows) {
    std::vector<int32_t> key;
    for (const model::EngineRow& row : rows) key.insert(key.end(), {row.token, row.position, row.sequence});
    const auto [entry, is_new] = outcomes_.try_emplace(std::move(key));
    Outcome& outcome = entry->second;
    if (is_new) {
      CpuForward engine(*engine_);
      EXPECT_TRUE(Run(engine, rows, &outcome.logits).ok());
      outcome.kv = Kv(rows);
    }
    return outcome;
  }
  std::mt19937 random_{1};
  std::map<std::vector<int32_t>, Outcome> outcomes_;

 protected:
  static constexpr int64_t kTokens = 200;
  const SyntheticSegment model_;
  WorkerPool pool_{2};
  const std::unique_ptr<model::Engine> engine_ =
      model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = kMaxRows}).value();
  std::vector<model::TestSequence> sequences_;
  std::vector<kv::KvPages> pages_;
};

}  // namespace moestro::decode
