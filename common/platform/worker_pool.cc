// One Run is published as a ticket: a 64-bit word of (run number, chunks not yet taken). Whoever lowers the second half
// by a compare-and-swap owns a chunk. The run number makes a late worker harmless: its compare-and-swap on an old
// ticket fails, so Run need not wait for workers that are still waking up, only for the chunks.
#include "common/platform/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"

namespace moestro {
namespace {

using Clock = std::chrono::steady_clock;

// Gaps between the parallel parts of one forward step are shorter than this, so that workers stay awake through a step;
// going to sleep and waking costs about as much.
constexpr auto kSpin = std::chrono::microseconds(40);
constexpr int kPausesPerClockRead = 32;
// Chunks per thread: enough to even out unequal work, few enough that taking one costs nothing.
constexpr int64_t kChunksPerThread = 8;
constexpr size_t kCacheLine = 64;

inline void Pause() { __builtin_ia32_pause(); }

// Returns when `word` is no longer `old`: spins a little where another hardware thread can change it, then sleeps.
uint32_t WaitWhileEqual(const std::atomic<uint32_t>& word, uint32_t old, bool may_spin) {
  if (may_spin) {
    const Clock::time_point give_up = Clock::now() + kSpin;
    do {
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (const uint32_t value = word.load(std::memory_order_acquire); value != old) return value;
        Pause();
      }
    } while (Clock::now() < give_up);
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

struct WorkerPool::State {
  using Work = absl::FunctionRef<void(int64_t index, int worker)>;

  // Of the current run; constant from the ticket's publication until the last chunk is done.
  const Work* work = nullptr;
  int64_t count = 0;
  int64_t chunk_size = 0;
  uint32_t chunks = 0;

  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};         // run number << 32 | chunks not yet taken
  alignas(kCacheLine) std::atomic<uint32_t> chunks_left{0};    // chunks not yet done; Run returns at 0
  alignas(kCacheLine) std::atomic<uint32_t> published_run{0};  // what idle workers wait on
  std::atomic<bool> stop{false};

  bool may_spin = false;
  std::vector<std::thread> threads;

  // Takes and does chunks until none is left.
  void Drain(int worker);
  void DoChunk(int64_t chunk, int worker);
  void WorkerLoop(int worker);
};

void WorkerPool::State::DoChunk(int64_t chunk, int worker) {
  const int64_t end = std::min(count, (chunk + 1) * chunk_size);
  for (int64_t index = chunk * chunk_size; index < end; ++index) (*work)(index, worker);
}

void WorkerPool::State::Drain(int worker) {
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (true) {
    const uint32_t untaken = static_cast<uint32_t>(seen);
    if (untaken == 0) return;
    if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire)) continue;
    // From here the run cannot end before this chunk is done: its fields may be read.
    DoChunk(chunks - untaken, worker);
    if (chunks_left.fetch_sub(1, std::memory_order_acq_rel) == 1) chunks_left.notify_one();
    seen = ticket.load(std::memory_order_acquire);
  }
}

void WorkerPool::State::WorkerLoop(int worker) {
  uint32_t run = 0;
  while (true) {
    run = WaitWhileEqual(published_run, run, may_spin);
    if (stop.load(std::memory_order_acquire)) return;
    Drain(worker);
  }
}

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>()) {
  MOE_CHECK(threads >= 1);
  state_->may_spin = std::thread::hardware_concurrency() > 1;
  state_->threads.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] { state->WorkerLoop(worker); });
  }
}

WorkerPool::~WorkerPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->published_run.fetch_add(1, std::memory_order_release);
  state_->published_run.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int WorkerPool::threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void WorkerPool::Run(int64_t count, absl::FunctionRef<void(int64_t index, int worker)> work) {
  State& state = *state_;
  if (count <= 1 || state.threads.empty()) {
    for (int64_t index = 0; index < count; ++index) work(index, 0);
    return;
  }
  state.work = &work;
  state.count = count;
  state.chunk_size = std::max<int64_t>(1, count / (threads() * kChunksPerThread));
  const int64_t chunks = CeilDiv(count, state.chunk_size);
  MOE_CHECK(chunks <= std::numeric_limits<uint32_t>::max());
  state.chunks = static_cast<uint32_t>(chunks);
  state.chunks_left.store(state.chunks, std::memory_order_relaxed);

  const uint32_t run = state.published_run.load(std::memory_order_relaxed) + 1;
  state.ticket.store(uint64_t{run} << 32 | state.chunks, std::memory_order_release);
  state.published_run.store(run, std::memory_order_release);
  state.published_run.notify_all();

  state.Drain(0);
  for (uint32_t left = state.chunks_left.load(std::memory_order_acquire); left != 0;) {
    left = WaitWhileEqual(state.chunks_left, left, state.may_spin);
  }
}

}  // namespace moestro
