#include "common/platform/worker_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace moestro {
namespace {

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class WorkerPoolThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, WorkerPoolThreads, testing::Values(1, 2, 3, 8));

TEST_P(WorkerPoolThreads, RunsEveryIndexExactlyOnceOnAValidWorker) {
  WorkerPool pool(GetParam());
  ASSERT_EQ(pool.threads(), GetParam());
  for (int64_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 100, 1000, 4097}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
    std::atomic<int> bad_workers{0};
    pool.Run(count, [&](int64_t index, int worker) {
      hits[static_cast<size_t>(index)].fetch_add(1, std::memory_order_relaxed);
      if (worker < 0 || worker >= GetParam()) bad_workers.fetch_add(1, std::memory_order_relaxed);
    });
    for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i].load(), 1) << "index " << i << " of " << count;
    EXPECT_EQ(bad_workers.load(), 0);
  }
}

// Plain writes by workers must be visible after Run, and those before Run to the workers: the thread sanitizer
// watches this test.
TEST_P(WorkerPoolThreads, RunPublishesMemoryBothWays) {
  WorkerPool pool(GetParam());
  std::vector<int64_t> numbers(257, 1);
  for (int round = 0; round < 2000; ++round) {
    pool.Run(static_cast<int64_t>(numbers.size()), [&](int64_t i, int) { numbers[static_cast<size_t>(i)] += i; });
  }
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], 1 + 2000 * static_cast<int64_t>(i));
}

// Short runs of changing size, some after a pause in which workers fall asleep: late workers must do no harm.
TEST_P(WorkerPoolThreads, ManyShortRuns) {
  WorkerPool pool(GetParam());
  int64_t expected = 0;
  std::atomic<int64_t> total{0};
  for (int round = 0; round < 20000; ++round) {
    const int64_t count = round % 13;
    pool.Run(count, [&](int64_t index, int) { total.fetch_add(index + 1, std::memory_order_relaxed); });
    expected += count * (count + 1) / 2;
    if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(total.load(), expected);
}

TEST(WorkerPool, AWorkerIdIsNeverUsedByTwoThreadsAtOnce) {
  WorkerPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  pool.Run(2000, [&](int64_t, int worker) {
    auto& mine = inside[static_cast<size_t>(worker)];
    if (mine.fetch_add(1) != 0) clashes.fetch_add(1);
    for (int i = 0; i < 100; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    mine.fetch_sub(1);
  });
  EXPECT_EQ(clashes.load(), 0);
}

// Two indices that wait for each other can only finish on two threads.
TEST(WorkerPool, IndicesRunAtTheSameTime) {
  WorkerPool pool(2);
  std::atomic<int> arrived{0};
  pool.Run(2, [&](int64_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

// The caller outlasts its spinning while another worker finishes the last chunk.
TEST(WorkerPool, WaitsForASlowLastChunk) {
  WorkerPool pool(2);
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> done{0};
    pool.Run(2, [&](int64_t, int worker) {
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      done.fetch_add(1);
    });
    EXPECT_EQ(done.load(), 2);
  }
}

TEST(WorkerPool, IdleWorkersBurnNothing) {
  WorkerPool pool(4);
  pool.Run(64, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the spinning
  const double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ProcessCpuSeconds() - before, 0.2 * 0.200);
}

TEST(WorkerPool, StartsAndStopsQuickly) {
  for (int i = 0; i < 50; ++i) {
    WorkerPool pool(1 + i % 5);
    if (i % 2 == 0) pool.Run(i, [](int64_t, int) {});
  }
}

}  // namespace
}  // namespace moestro
