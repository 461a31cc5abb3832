// Distributed prefills of a small model: ranks that are threads, each with a host device and a worker of its own.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "common/engine/host/host_rank_kernels.h"
#include "services/prefill/distributed/distributed_prefill.h"
#include "tests/common/model/tolerance.h"
#include "tests/services/prefill/stream/stream_fixture.h"
#include "tests/support/test_kernels.h"

namespace moestro::prefill {

// A rank's exchanges, each of which asks first, on the thread that does it.
class AskingCommunicator final : public collective::Communicator {
 public:
  using Ask = std::function<absl::Status(collective::Operation operation)>;
  AskingCommunicator(std::unique_ptr<collective::Communicator> inner, device::Device& device, Ask ask)
      : Communicator(inner->rank(), inner->ranks(), device), inner_(std::move(inner)), ask_(std::move(ask)) {}

  void Fail(const absl::Status& status) override { inner_->Fail(status); }
  int failed_rank() const override { return inner_->failed_rank(); }
  void Beat() override { inner_->Beat(); }

 private:
  absl::Status Exchange(collective::Operation operation, const collective::Call& call, std::span<const Send> sends,
                        std::span<const Receive> receives) override {
    if (const absl::Status status = ask_(operation); !status.ok()) return status;
    std::vector<collective::SendBlock> to(static_cast<size_t>(ranks()));
    std::vector<collective::ReceiveBlock> from(static_cast<size_t>(ranks()));
    for (const Send& send : sends) to[static_cast<size_t>(send.peer)] = send.block;
    for (const Receive& receive : receives) from[static_cast<size_t>(receive.peer)] = receive.block;
    return inner_->AllToAll(call, to, from);
  }

  const std::unique_ptr<collective::Communicator> inner_;
  const Ask ask_;
};

// Ranks of this process, all of whose exchanges ask.
class AskingRankGroup final : public RankGroup {
 public:
  using Ask = std::function<absl::Status(int rank, collective::Operation operation)>;
  AskingRankGroup(std::unique_ptr<RankGroup> inner, Ask ask) : inner_(std::move(inner)), ask_(std::move(ask)) {}
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int rank, device::Device& device) override {
    auto communicator = inner_->Join(rank, device);
    if (!communicator.ok()) return communicator.status();
    return std::make_unique<AskingCommunicator>(
        *std::move(communicator), device,
        [this, rank](collective::Operation operation) { return ask_(rank, operation); });
  }

 private:
  const std::unique_ptr<RankGroup> inner_;
  const Ask ask_;
};

inline float FromNarrow(uint16_t number) { return std::bit_cast<float>(uint32_t{number} << 16); }

class DistributedTest : public StreamTest {
 protected:
  static constexpr int64_t kDense = 1 << 20;

  explicit DistributedTest(const weights::ModelSpec& model = SmallSpec(), bool decisive_biases = true)
      : StreamTest(MakeSyntheticSegment({.spec = model, .decisive_biases = decisive_biases})) {}

  explicit DistributedTest(const SyntheticOptions& options) : StreamTest(MakeSyntheticSegment(options)) {}

  struct Ranks {
    int ranks = 2;
    roofline::ExpertParallelism experts = roofline::ExpertParallelism::kSmall;
    model::MlaForm form = model::MlaForm::kUnabsorbed;
    int64_t logits = 4;
    int64_t tile_rows = 48;
    int64_t ring_slots = 2;
    int64_t cached = 0;                // tokens before the prompt, computed by the resident engine
    std::vector<int64_t> shares = {};  // of the ranks; empty: equal ones
    double timeout_seconds = 30;       // sanitizers are slow
    const device::Clock* clock = &device::SteadyClock();
    std::function<absl::Status()> check = {};
    AskingRankGroup::Ask ask = {};  // of all exchanges
    bool peers = false;             // devices copy from each other's memory
  };

  // One rank's device, and what computes on it.
  struct Host {
    Host(const weights::ModelSpec& spec, const model::ModelWeights& weights, int64_t tile_rows)
        : kernels(spec, weights, TestKernels(), pool, tile_rows) {}
    WorkerPool pool{1};
    std::unique_ptr<device::Device> memory = device::NewHostDevice({.memory_bytes = kDeviceBytes});
    device::FaultyDevice device{*memory};
    engine::HostRankKernels kernels;
  };

  Outcome Distributed(int64_t count, const Ranks& setting,
                      absl::FunctionRef<absl::Status()> interrupted = model::NeverInterrupted,
                      const StreamEvents& events = {},
                      const std::function<void(std::vector<std::shared_ptr<Host>>& hosts)>& prepare = {}) {
    std::vector<std::shared_ptr<Host>> hosts;
    std::vector<RankSetup> setups;
    for (int rank = 0; rank < setting.ranks; ++rank) {
      hosts.push_back(std::make_shared<Host>(spec(), weights_, setting.tile_rows));
      setups.push_back({.device = &hosts.back()->device,
                        .kernels = &hosts.back()->kernels,
                        .check = setting.check,
                        .owner = hosts.back()});
      if (!setting.shares.empty()) setups.back().share = setting.shares[static_cast<size_t>(rank)];
    }
    if (prepare) prepare(hosts);
    DistributedPrefill prefill(spec(), weights_, setups,
                               {.experts = setting.experts,
                                .limits = {.dense_bytes = kDense, .ring_slots = setting.ring_slots},
                                .new_group = [&](int ranks) -> std::unique_ptr<RankGroup> {
                                  auto group = (setting.peers ? NewPeerRankGroup : NewInProcessRankGroup)(
                                      ranks, {.timeout_seconds = setting.timeout_seconds, .clock = setting.clock});
                                  if (!setting.ask) return group;
                                  return std::make_unique<AskingRankGroup>(std::move(group), setting.ask);
                                }});
    const model::TestSequence sequence(spec(), count);
    const kv::KvPages pages[] = {sequence.pages()};
    const std::vector<int32_t> tokens = Tokens(count);
    const std::vector<model::EngineRow> rows = Rows(tokens, setting.logits);
    if (setting.cached > 0) FillCache(rows, setting, pages);
    Outcome outcome;
    outcome.status = prefill.Run(std::span(rows).subspan(static_cast<size_t>(setting.cached)), pages, setting.form,
                                 interrupted, events, [&](int64_t row, std::span<const float> logits) {
                                   EXPECT_TRUE(rows[static_cast<size_t>(setting.cached + row)].needs_logits);
                                   outcome.logits.emplace_back(logits.begin(), logits.end());
                                 });
    outcome.kv = sequence.Contents(count);
    reports_ = prefill.reports();
    failed_ranks_ = prefill.failed_ranks();
    copies_failed_ = prefill.copies_failed();
    for (int rank = 0; rank < setting.ranks; ++rank) {
      in_use_.push_back(prefill.in_use(rank));
      if (!in_use_.back().expired()) continue;
      EXPECT_EQ(hosts[static_cast<size_t>(rank)]->device.memory_used(), 0);
    }
    return outcome;
  }

  void FillCache(std::span<const model::EngineRow> rows, const Ranks& setting, std::span<const kv::KvPages> pages) {
    const auto engine =
        model::Engine::Create(*model_.segment, TestKernels(), pool_, {.max_rows = setting.cached}).value();
    std::vector<model::EngineRow> cached(rows.begin(), rows.begin() + setting.cached);
    for (model::EngineRow& row : cached) row.needs_logits = false;
    model::Forward(*engine, cached, pages, setting.form);
  }

  static int64_t Greedy(const std::vector<float>& logits) { return std::ranges::max_element(logits) - logits.begin(); }

  // Where inputs are coded, another rounding before may move one to another code.
  double Deviation() const {
    return std::hypot(model::RelativeDeviation(spec()), coded_inputs_ ? model::Int8Deviation(spec()) : 0);
  }

  // KV and logits within what rounding allows; greedy tokens equal, unless two are closer than that. `other_choices`:
  // rows that may have chosen other experts, which is not continuous in what it depends on.
  void ExpectAgrees(int64_t count, const Ranks& setting, int64_t other_choices = 0) {
    const Outcome& expected = Resident(count, setting.form, setting.logits);
    const Outcome outcome = Distributed(count, setting);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ExpectLogitsAgree(outcome.logits, expected.logits, other_choices);
    ExpectKvAgrees(outcome.kv, expected.kv);
  }

  void ExpectLogitsAgree(const model::Logits& actual, const model::Logits& expected, int64_t other_choices = 0) {
    ASSERT_EQ(actual.size(), expected.size());
    const double tolerance = std::sqrt(2.0) * Deviation() / model::RelativeDeviation(spec());  // both have rounded
    int64_t off = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto valid = static_cast<size_t>(spec().token_count);
      const std::vector<double> logits(expected[i].begin(), expected[i].begin() + valid);
      const double ratio = model::ToleranceRatio(spec(), actual[i], logits);
      const double gap = *std::ranges::max_element(logits) - logits[Greedy(actual[i])];
      const double scale = model::kSigmas * model::RelativeDeviation(spec()) * model::RootMeanSquare(logits);
      if (ratio >= tolerance || gap >= 2 * tolerance * scale) ++off;
    }
    EXPECT_LE(off, other_choices);
  }

  // A cached number has gone through the roundings of the layers before, as logits have.
  void ExpectKvAgrees(const std::vector<uint16_t>& actual, const std::vector<uint16_t>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    double square = 0;
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double value = FromNarrow(expected[i]);
      square += value * value;
      worst = std::max(worst, std::abs(FromNarrow(actual[i]) - value));
    }
    const double rms = std::sqrt(square / static_cast<double>(expected.size()));
    EXPECT_LT(worst, std::sqrt(2.0) * model::kSigmas * Deviation() * rms);
  }

  // Ranks that were left behind use the model.
  void TearDown() override {
    for (const auto& rank : in_use_) {
      while (!rank.expired()) std::this_thread::yield();
    }
  }

  bool coded_inputs_ = false;
  // Of the last run.
  std::vector<RankReport> reports_;
  std::vector<int> failed_ranks_;
  bool copies_failed_ = false;

 private:
  std::vector<std::weak_ptr<const void>> in_use_;
};

}  // namespace moestro::prefill
