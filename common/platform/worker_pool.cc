// A run is published as tickets: 64-bit words of (run number, indices not yet taken). There is one for the indices that
// all workers share, and one for each domain's own. A worker that lowers the second half by a compare-and-swap owns the
// indices in between. The run number makes a late worker harmless: its compare-and-swap on an old ticket fails. So a
// run waits only for the indices, not for workers that are still waking up.
#include "common/platform/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"

namespace moestro {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeping and waking costs about as much. On the CPU alone, the gaps between parallel parts of a forward step are
// shorter, so workers stay awake through a step. With attention on a device (decode's `--device`), a layer's attention
// fills the gap, and workers sleep.
constexpr auto kSpin = std::chrono::microseconds(40);
constexpr int kPausesPerClockRead = 32;
// Guided self-scheduling: a worker takes its fair share of the rest, divided by this. Large runs begin with large
// pieces, which need few steps. All runs end with single indices, so workers finish within one index of each other.
// Greater values suit indices of more unequal cost.
constexpr int64_t kShareDivisor = 4;
constexpr size_t kCacheLine = 64;

inline void Pause() { __builtin_ia32_pause(); }

// Returns when `word` differs from `old`. Spins briefly if another hardware thread can change it, then sleeps.
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

using Work = absl::FunctionRef<void(int domain, int64_t index, int worker)>;

// Indices that one group of workers takes.
struct Queue {
  int domain = 0;
  std::atomic<uint32_t> share_divisor{1};  // kShareDivisor times the active workers of the group
  uint32_t count = 0;  // of the current run; constant from the ticket's publication to the run's end
  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};  // run number << 32 | indices not yet taken

  void Publish(uint32_t run, uint32_t indices) {
    count = indices;
    ticket.store(uint64_t{run} << 32 | indices, std::memory_order_release);
  }
};

// The CPUs of each domain for workers begin..end-1, which are assigned to the domains in turn. Empty for a domain with
// more workers than CPUs.
std::vector<std::vector<int>> DomainCpus(std::span<const NumaNode> nodes, int begin, int end, int domains) {
  std::vector<std::vector<int>> cpus;
  for (NumaDomain& domain : MakeNumaDomains(nodes, domains)) {
    const auto d = static_cast<int64_t>(cpus.size());
    const int64_t workers = CeilDiv(end - d, domains) - CeilDiv(begin - d, domains);
    if (workers > static_cast<int64_t>(domain.cpus.size())) domain.cpus.clear();
    cpus.push_back(std::move(domain.cpus));
  }
  return cpus;
}

}  // namespace

struct WorkerPool::State {
  const Work* work = nullptr;                                  // of the current run
  Queue shared;                                                // indices of Run
  std::vector<Queue> queues;                                   // indices of RunPerDomain, by domain
  alignas(kCacheLine) std::atomic<uint32_t> indices_left{0};   // not yet reported as done; the run ends at 0
  alignas(kCacheLine) std::atomic<uint32_t> published_run{0};  // idle workers wait for it to change
  std::atomic<bool> stop{false};

  // Workers of this number and above are parked: they wait for it to grow. Changes only between runs.
  alignas(kCacheLine) std::atomic<int> active{1};

  bool may_spin = false;
  int own_workers = 1;
  int worker_count = 1;
  int most_active = 1;
  std::vector<int> caller_cpus;  // empty: not pinned
  std::vector<std::thread> threads;

  // Takes and does indices until none is left. Returns their count: the run cannot end before they are reported.
  uint32_t Drain(Queue& queue, int worker) {
    uint32_t done = 0;
    uint64_t seen = queue.ticket.load(std::memory_order_acquire);
    while (true) {
      const auto untaken = static_cast<uint32_t>(seen);
      // A worker that was parked after an earlier run and is late must not join this one. The ticket was published
      // after `active` was set.
      if (untaken == 0 || worker >= active.load(std::memory_order_relaxed)) return done;
      const uint32_t taken = std::max<uint32_t>(1, untaken / queue.share_divisor.load(std::memory_order_relaxed));
      if (!queue.ticket.compare_exchange_weak(seen, seen - taken, std::memory_order_acquire)) continue;
      // From here the run cannot end, so its fields may be read.
      const int64_t begin = int64_t{queue.count} - untaken;
      for (int64_t index = begin; index < begin + taken; ++index) (*work)(queue.domain, index, worker);
      done += taken;
      seen = queue.ticket.load(std::memory_order_acquire);
    }
  }

  void DrainAndReport(int domain, int worker) {
    const uint32_t done = Drain(shared, worker) + Drain(queues[static_cast<size_t>(domain)], worker);
    if (done > 0 && indices_left.fetch_sub(done, std::memory_order_acq_rel) == done) indices_left.notify_one();
  }

  // Sleeps while `worker` is not active.
  void Park(int worker) {
    for (int count = active.load(std::memory_order_acquire); worker >= count;) {
      active.wait(count, std::memory_order_acquire);
      count = active.load(std::memory_order_acquire);
    }
  }

  void WorkerLoop(int domain, int worker) {
    uint32_t run = 0;
    while (true) {
      Park(worker);
      run = WaitWhileEqual(published_run, run, may_spin);
      if (stop.load(std::memory_order_acquire)) return;
      DrainAndReport(domain, worker);
    }
  }

  // Runs `total` indices, which publish(run number) puts into the queues. Returns when all are done.
  void RunAll(int64_t total, const Work& new_work, absl::FunctionRef<void(uint32_t run)> publish) {
    MOE_CHECK(total <= std::numeric_limits<uint32_t>::max());
    work = &new_work;
    indices_left.store(static_cast<uint32_t>(total), std::memory_order_relaxed);
    const uint32_t run = published_run.load(std::memory_order_relaxed) + 1;
    publish(run);
    published_run.store(run, std::memory_order_release);
    published_run.notify_all();

    DrainAndReport(0, 0);
    for (uint32_t left = indices_left.load(std::memory_order_acquire); left != 0;) {
      left = WaitWhileEqual(indices_left, left, may_spin);
    }
  }
};

// A worker is pinned to all CPUs of its domain, not to a single one. Prefill and decode each keep a pool on the same
// CPUs. When both compute at once (or anything else runs), a worker bound to one CPU would wait while other CPUs are
// free. Every run would wait for that worker. Pinning serves the memory: a worker reads its own node's. Within a node,
// any core streams the weights equally well. So one domain needs no pinning.
WorkerPool::WorkerPool(const Options& options) : state_(std::make_unique<State>()) {
  MOE_CHECK(options.threads >= 1);
  MOE_CHECK(options.domains >= 1 && options.domains <= options.threads);
  State& state = *state_;
  state.own_workers = options.threads;
  state.worker_count = options.threads + static_cast<int>(options.lent_cpus.size());
  state.most_active = state.worker_count;
  state.may_spin = AllowedCpus().size() + options.lent_cpus.size() > 1;
  state.queues = std::vector<Queue>(static_cast<size_t>(options.domains));
  for (int domain = 0; domain < options.domains; ++domain) state.queues[static_cast<size_t>(domain)].domain = domain;
  Activate(options.threads);

  std::vector<std::vector<int>> own_cpus(state.queues.size());
  if (options.pin && options.domains > 1) own_cpus = DomainCpus(ReadNumaNodes(), 0, options.threads, options.domains);
  const std::vector<std::vector<int>> lent_cpus =
      DomainCpus(ReadNumaNodes(options.lent_cpus), options.threads, state.worker_count, options.domains);
  state.caller_cpus = own_cpus[0];
  state.threads.reserve(static_cast<size_t>(state.worker_count - 1));
  for (int worker = 1; worker < state.worker_count; ++worker) {
    const int domain = DomainOf(worker);
    const bool lent = worker >= options.threads;
    std::vector<int> cpus = (lent ? lent_cpus : own_cpus)[static_cast<size_t>(domain)];
    if (lent && cpus.empty()) cpus = options.lent_cpus;  // it would inherit the process's own CPUs
    try {
      state.threads.emplace_back([&state, cpus = std::move(cpus), domain, worker] {
        const ScopedAffinity pinned(cpus);
        state.WorkerLoop(domain, worker);
      });
    } catch (const std::system_error& error) {
      EndThreads();
      throw std::system_error(error.code(), "cannot start " + std::to_string(state.worker_count) +
                                                " threads; allow more (ulimit -u, or the container's pids limit) or "
                                                "give fewer as --threads");
    }
  }
}

WorkerPool::~WorkerPool() { EndThreads(); }

void WorkerPool::EndThreads() {
  state_->stop.store(true, std::memory_order_release);
  Activate(threads());  // wakes parked workers
  state_->published_run.fetch_add(1, std::memory_order_release);
  state_->published_run.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int WorkerPool::threads() const { return state_->worker_count; }
int WorkerPool::own_threads() const { return state_->own_workers; }
int WorkerPool::domains() const { return static_cast<int>(state_->queues.size()); }
// Round-robin, so that any number of active workers is spread evenly over the domains.
int WorkerPool::DomainOf(int worker) const { return worker % domains(); }

void WorkerPool::SetActiveThreads(int count) {
  MOE_CHECK(count >= domains() && count <= threads());
  const int allowed = std::max(domains(), std::min(count, state_->most_active));
  if (allowed != active_threads()) Activate(allowed);
}

void WorkerPool::LimitActiveThreads(int most) { state_->most_active = most; }

void WorkerPool::Activate(int count) {
  State& state = *state_;
  state.shared.share_divisor.store(static_cast<uint32_t>(kShareDivisor * count), std::memory_order_relaxed);
  for (Queue& queue : state.queues) {
    const int64_t workers = CeilDiv(count - queue.domain, domains());
    queue.share_divisor.store(static_cast<uint32_t>(kShareDivisor * workers), std::memory_order_relaxed);
  }
  state.active.store(count, std::memory_order_release);
  state.active.notify_all();
}

int WorkerPool::active_threads() const { return state_->active.load(std::memory_order_relaxed); }

ScopedAffinity WorkerPool::PinCaller() const { return ScopedAffinity(state_->caller_cpus); }

void WorkerPool::Run(int64_t count, absl::FunctionRef<void(int64_t index, int worker)> work) {
  State& state = *state_;
  if (count <= 1 || active_threads() == 1) {
    for (int64_t index = 0; index < count; ++index) work(index, 0);
    return;
  }
  const auto in_any_domain = [work](int, int64_t index, int worker) { work(index, worker); };
  state.RunAll(count, in_any_domain, [&](uint32_t run) { state.shared.Publish(run, static_cast<uint32_t>(count)); });
}

void WorkerPool::RunPerDomain(absl::FunctionRef<int64_t(int domain)> count,
                              absl::FunctionRef<void(int domain, int64_t index, int worker)> work) {
  State& state = *state_;
  int64_t total = 0;
  for (int domain = 0; domain < domains(); ++domain) total += count(domain);
  if (active_threads() == 1 || total == 0) {
    for (int64_t index = 0; index < total; ++index) work(0, index, 0);
    return;
  }
  state.RunAll(total, work, [&](uint32_t run) {
    for (Queue& queue : state.queues) queue.Publish(run, static_cast<uint32_t>(count(queue.domain)));
  });
}

}  // namespace moestro
