// A step that fails: what it takes to find the sequence that is to blame.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

constexpr int32_t kBadToken = 77;
constexpr int kSequences = 16;

// The engine, which refuses passes with the bad token. Its first pass waits until the test lets it go.
class RefusingForward final : public ForwardPass {
 public:
  explicit RefusingForward(model::Engine& engine) : engine_(engine) {}
  const weights::ModelSpec& spec() const override { return engine_.spec(); }
  int64_t max_rows() const override { return engine_.max_rows(); }
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override {
    {
      std::unique_lock lock(mutex_);
      sequences_.push_back(std::ssize(batch.sequences));
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    }
    if (std::ranges::count(batch.rows, kBadToken, &model::EngineRow::token) > 0) return absl::InternalError("bad");
    return engine_.Forward(batch, interrupted, on_logits);
  }
  void WaitForFirst() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !sequences_.empty(); });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::vector<int64_t> sequences() {  // of each pass
    std::lock_guard lock(mutex_);
    return sequences_;
  }

 private:
  model::Engine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<int64_t> sequences_;
};

TEST(StepFailureTest, OneBadSequenceOfManyIsFoundByHalves) {
  EngineNode node(kSequences + 64);
  LeaseTable leases(node.pool(), 64);
  MetricsRegistry registry("decode");
  DecodeMetrics metrics(registry);
  RefusingForward forward(node.engine());
  DecodeLoop loop(forward, node.pool(), leases, metrics,
                  {.max_batch = kSequences, .chunks = {.bound_seconds = 10, .max_rows = 64}});
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int32_t i = 0; i <= kSequences; ++i) {
    const std::vector<int32_t> tokens = {20 + i, i == 6 ? kBadToken : 40};
    const auto lease = leases.Reserve({.tokens = tokens, .max_tokens = 1, .arrival = 1u + static_cast<uint64_t>(i)});
    streams.push_back(loop.Prompt(lease.value(), {.max_tokens = 1}).value());
    if (i == 0) forward.WaitForFirst();  // the others come while it computes
  }
  forward.Open();
  for (int i = 0; i <= kSequences; ++i) {
    EXPECT_EQ(Collect(*streams[static_cast<size_t>(i)]).error.ok(), i != 6) << i;
  }
  // Alone; all others; then two halves of 16, of 8, of 4, of 2.
  const std::vector<int64_t> passes = forward.sequences();
  EXPECT_EQ(passes, (std::vector<int64_t>{1, 16, 8, 4, 4, 2, 1, 1, 2, 8}));
  for (const auto& stream : streams) loop.Remove(stream);
}

}  // namespace
}  // namespace moestro::decode
