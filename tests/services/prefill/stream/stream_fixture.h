// A small model, its resident engine, and streamed prefills of it on the host device.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/device/host/host_device.h"
#include "common/engine/host/host_prefill.h"
#include "common/model/binding.h"
#include "gtest/gtest.h"
#include "services/prefill/stream/stream_prefill.h"
#include "tests/common/model/engine_harness.h"
#include "tests/support/faulty_device.h"
#include "tests/support/synthetic_segment.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {

struct Outcome {
  absl::Status status;
  model::Logits logits;
  std::vector<uint16_t> kv;
};

class StreamTest : public ::testing::Test {
 protected:
  static constexpr int64_t kDeviceBytes = int64_t{1} << 30;
  static constexpr int64_t kChunk = 256;  // of the resident engine

  explicit StreamTest(const weights::ModelSpec& model = SmallSpec())
      : StreamTest(MakeSyntheticSegment({.spec = model})) {}
  explicit StreamTest(SyntheticSegment model)
      : model_(std::move(model)), weights_(model::BindWeights(*model_.segment).value()) {}

  const weights::ModelSpec& spec() const { return model_.segment->spec(); }

  // All but the head's slices fit into so many dense bytes.
  int64_t LargestDense(model::MlaForm form) const {
    int64_t bytes = 0;
    for (const engine::Module& module : engine::ListModules(spec(), weights_, form, 1)) {
      if (module.kind != engine::ModuleKind::kExpert) bytes = std::max(bytes, module.image.bytes);
    }
    return bytes;
  }

  std::vector<int32_t> Tokens(int64_t count) const { return model::RandomTokens(count, spec().token_count, 11); }

  // The last rows want logits: at most `logits` of them.
  static std::vector<model::EngineRow> Rows(std::span<const int32_t> tokens, int64_t logits) {
    std::vector<model::EngineRow> rows = model::MakeRows(tokens, 0);
    for (int64_t i = 0; i < std::ssize(rows); ++i) rows[i].needs_logits = i + logits >= std::ssize(rows);
    return rows;
  }

  // What the resident engine computes.
  const Outcome& Resident(int64_t count, model::MlaForm form, int64_t logits) {
    Outcome& outcome = resident_[{count, form, logits}];
    if (!outcome.kv.empty()) return outcome;
    const auto engine = model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = kChunk}).value();
    const model::TestSequence sequence(spec(), count);
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<int32_t> tokens = Tokens(count);
    const std::vector<model::EngineRow> rows = Rows(tokens, logits);
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      const auto chunk = std::span(rows).subspan(begin, std::min(kChunk, count - begin));
      for (auto& row : model::Forward(*engine, chunk, pages, form)) outcome.logits.push_back(std::move(row));
    }
    outcome.kv = sequence.Contents(count);
    return outcome;
  }

  // All rows' logits, of what a run has left of them after the last layer.
  model::Logits LogitsOf(std::span<const float> residuals, int64_t count) {
    const auto engine = model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = 1}).value();
    model::Logits logits;
    const absl::Status status =
        engine->Logits(Rows(Tokens(count), count), residuals, model::NeverInterrupted,
                       [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }

  struct Setting {
    MemoryLimits limits;
    int64_t tile_rows = 64;
    model::MlaForm form = model::MlaForm::kAbsorbed;
    int64_t logits = 4;
  };

  Outcome Stream(int64_t count, const Setting& setting,
                 absl::FunctionRef<absl::Status()> interrupted = model::NeverInterrupted,
                 const StreamEvents& events = {}) {
    engine::HostPrefill compute(spec(), weights_, TestKernels(), pool_, setting.tile_rows);
    StreamPrefill prefill(device_, spec(), weights_, compute, setting.limits);
    const model::TestSequence sequence(spec(), count);
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<int32_t> tokens = Tokens(count);
    const std::vector<model::EngineRow> rows = Rows(tokens, setting.logits);
    Outcome outcome;
    outcome.status = prefill.Run(
        rows, pages, setting.form, interrupted, events,
        [&](int64_t, std::span<const float> logits) { outcome.logits.emplace_back(logits.begin(), logits.end()); });
    outcome.kv = sequence.Contents(count);
    report_ = prefill.report();
    EXPECT_EQ(device_.memory_used(), 0);
    return outcome;
  }

  void ExpectSameBits(int64_t count, const Setting& setting) {
    const Outcome& expected = Resident(count, setting.form, setting.logits);
    const Outcome outcome = Stream(count, setting);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
    EXPECT_EQ(outcome.kv, expected.kv);
  }

  // Of the first tokens of a longer prompt, of which the resident engine gave all logits: its bits do not depend on
  // what follows.
  void ExpectSameBitsAsTheBeginning(int64_t count, const Setting& setting, int64_t longer) {
    const Outcome& whole = Resident(longer, setting.form, longer);
    Outcome expected;
    expected.logits.assign(whole.logits.begin() + count - setting.logits, whole.logits.begin() + count);
    const int64_t layer_size = std::ssize(whole.kv) / spec().num_layers;
    for (int64_t layer = 0; layer < spec().num_layers; ++layer) {
      const auto begin = whole.kv.begin() + layer * layer_size;
      expected.kv.insert(expected.kv.end(), begin, begin + count * layer_size / longer);
    }
    const Outcome outcome = Stream(count, setting);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(model::SameBits(outcome.logits, expected.logits));
    EXPECT_EQ(outcome.kv, expected.kv);
  }

  SyntheticSegment model_;
  model::ModelWeights weights_;
  WorkerPool pool_{2};
  std::unique_ptr<device::Device> host_ = device::NewHostDevice({.memory_bytes = kDeviceBytes});
  device::FaultyDevice device_{*host_};
  std::map<std::tuple<int64_t, model::MlaForm, int64_t>, Outcome> resident_;
  PipelineReport report_;  // of the last run
};

}  // namespace moestro::prefill
