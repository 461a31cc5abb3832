// The loop's signs of life: a step that takes long beats between its layers, one that hangs does not.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>

#include "tests/services/decode/decode_fixture.h"

namespace moestro::decode {
namespace {

using std::chrono::hours;

// The engine, whose layers wait until the test lets one go.
class HeldForward final : public ForwardPass {
 public:
  explicit HeldForward(model::Engine& engine) : engine_(engine) {}
  const weights::ModelSpec& spec() const override { return engine_.spec(); }
  int64_t max_rows() const override { return engine_.max_rows(); }
  absl::Status Forward(const model::ForwardBatch& batch, absl::FunctionRef<absl::Status()> interrupted,
                       absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) override {
    const auto between_layers = [&] {
      const absl::Status status = interrupted();
      std::unique_lock lock(mutex_);
      ++reached_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return reached_ <= passed_ || free_; });
      return status;
    };
    return engine_.Forward(batch, between_layers, on_logits);
  }

  void WaitForLayer(int layer) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ == layer; });
  }
  void PassLayer() {
    Change([&] { ++passed_; });
  }
  void PassAll() {
    Change([&] { free_ = true; });
  }

 private:
  void Change(const std::function<void()>& change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  model::Engine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int reached_ = 0;  // layers
  int passed_ = 0;
  bool free_ = false;
};

TEST(LoopHeartbeatTest, BeatsBetweenLayersAndRestsWithoutWork) {
  EngineNode node;
  LeaseTable leases(node.pool(), 64);
  MetricsRegistry registry("decode");
  DecodeMetrics metrics(registry);
  HeldForward forward(node.engine());
  DecodeLoop loop(forward, node.pool(), leases, metrics,
                  {.max_batch = 2, .chunks = {.bound_seconds = 10, .max_rows = 16}});
  const auto heartbeat = loop.heartbeat();
  const auto future = [] { return Heartbeat::Clock::now() + hours(1); };
  EXPECT_EQ(heartbeat->Silence(future()), hours(0));

  const auto lease = leases.Reserve({.tokens = {5, 6, 7}, .max_tokens = 10, .arrival = 1}).value();
  const auto stream = loop.Prompt(lease, {.max_tokens = 1}).value();
  forward.WaitForLayer(1);
  const auto looked = Heartbeat::Clock::now();
  const auto silence = heartbeat->Silence(looked + hours(1));
  EXPECT_GE(silence, hours(1)) << "it has work, and stands still";
  forward.PassLayer();
  forward.WaitForLayer(2);
  EXPECT_LT(heartbeat->Silence(looked + hours(1)), silence) << "one layer on";
  forward.PassAll();
  EXPECT_TRUE(Collect(*stream).reason.has_value());
  loop.Remove(stream);
  // The loop notices that it has no work after it has told so.
  while (heartbeat->Silence(future()) != hours(0)) std::this_thread::yield();
}

}  // namespace
}  // namespace moestro::decode
