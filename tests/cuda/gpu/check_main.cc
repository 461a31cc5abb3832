// Runs tests on a GPU. A fault of the device would fail all tests that follow, so the process ends with the test that
// has it; so it does with a test that hangs, if a flag says after how long it does. tests/cuda/run starts another
// process for the rest.
//   PROGRAM [--test-seconds=N] [flags of GoogleTest]
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tests/cuda/device.h"

namespace moestro::cuda {
namespace {

class EndsWithAFault : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    Synchronize();  // may tell an error that is over
    const std::string error = Synchronize();
    if (error.empty()) return;
    std::fflush(stdout);
    std::fprintf(stderr, "the device is lost: %s\n", error.c_str());
    std::_Exit(1);
  }
};

// A thread of its own, because a call that waits for a kernel which hangs never returns.
class EndsWithAHang : public ::testing::EmptyTestEventListener {
 public:
  explicit EndsWithAHang(double seconds) : seconds_(seconds), thread_([this] { Watch(); }) {}
  ~EndsWithAHang() override {
    Set({}, true);
    thread_.join();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void OnTestStart(const ::testing::TestInfo& /*test*/) override {
    Set(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_)), false);
  }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override { Set({}, false); }

  void Set(std::optional<Clock::time_point> deadline, bool stopped) {
    std::lock_guard lock(mutex_);
    deadline_ = deadline;
    stopped_ = stopped;
    changed_.notify_one();
  }
  void Watch() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (!deadline_) {
        changed_.wait(lock);
      } else if (Clock::now() < *deadline_) {
        changed_.wait_until(lock, *deadline_);
      } else {
        std::fprintf(stderr, "the test hangs: no end after %g s\n", seconds_);
        std::_Exit(1);
      }
    }
  }

  const double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> deadline_;  // of the test that runs; guarded by mutex_, as the next
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace moestro::cuda

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();  // which owns its own
  constexpr char kSeconds[] = "--test-seconds=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kSeconds, sizeof kSeconds - 1) != 0) {
      std::fprintf(stderr, "%s: there is no such flag\n", argv[i]);
      return 2;
    }
    listeners.Append(new moestro::cuda::EndsWithAHang(std::strtod(argv[i] + sizeof kSeconds - 1, nullptr)));
  }
  listeners.Append(new moestro::cuda::EndsWithAFault);  // whose end of a test comes first, and may hang
  return RUN_ALL_TESTS();
}
