#include "common/platform/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/exceptions.h"
#include "common/base/math.h"
#include "common/platform/countdown.h"
#include "common/platform/numa.h"
#include "tests/common/platform/child_process.h"

namespace moestro {
namespace {

using moestro::testing::ChildProcess;

double ProcessCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Every combination of domains and threads that a pool can have here.
std::vector<WorkerPool::Options> Shapes() {
  std::vector<WorkerPool::Options> shapes;
  for (int domains = 1; domains <= 3; ++domains) {
    for (int threads = domains; threads <= 5; ++threads) shapes.push_back({.threads = threads, .domains = domains});
  }
  return shapes;
}

std::string ShapeName(const ::testing::TestParamInfo<WorkerPool::Options>& info) {
  return std::to_string(info.param.threads) + "threads" + std::to_string(info.param.domains) + "domains";
}

class WorkerPoolShapes : public ::testing::TestWithParam<WorkerPool::Options> {};
INSTANTIATE_TEST_SUITE_P(Shapes, WorkerPoolShapes, ::testing::ValuesIn(Shapes()), ShapeName);

TEST_P(WorkerPoolShapes, WorkersAreSplitEvenlyOverDomains) {
  const WorkerPool pool(GetParam());
  ASSERT_EQ(pool.threads(), GetParam().threads);
  ASSERT_EQ(pool.domains(), GetParam().domains);
  std::vector<int> workers(static_cast<size_t>(pool.domains()));
  for (int worker = 0; worker < pool.threads(); ++worker) ++workers[static_cast<size_t>(pool.DomainOf(worker))];
  EXPECT_EQ(pool.DomainOf(0), 0);
  for (const int count : workers) {
    EXPECT_GE(count, pool.threads() / pool.domains());
    EXPECT_LE(count, pool.threads() / pool.domains() + 1);
  }
}

TEST_P(WorkerPoolShapes, RunsEveryIndexExactlyOnce) {
  WorkerPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 3, 7, 16, 17, 100, 10000}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
    pool.Run(count, [&](int64_t index, int worker) {
      hits[static_cast<size_t>(index)].fetch_add(worker < GetParam().threads ? 1 : 100, std::memory_order_relaxed);
    });
    for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i].load(), 1) << "index " << i << " of " << count;
  }
}

TEST_P(WorkerPoolShapes, DomainsDoAllTheirIndicesAndNoOthers) {
  WorkerPool pool(GetParam());
  const auto domains = static_cast<size_t>(pool.domains());
  for (const int64_t count : {0, 1, 2, 3, 7, 16, 17, 100, 10000}) {
    const auto count_of = [&](int domain) { return domain == 1 ? count / 3 : count; };  // unequal work
    std::vector<std::vector<std::atomic<int>>> hits(domains);
    for (size_t d = 0; d < domains; ++d) {
      hits[d] = std::vector<std::atomic<int>>(static_cast<size_t>(count_of(static_cast<int>(d))));
    }
    std::atomic<int> strangers{0};
    pool.RunPerDomain(count_of, [&](int domain, int64_t index, int worker) {
      hits[static_cast<size_t>(domain)][static_cast<size_t>(index)].fetch_add(1, std::memory_order_relaxed);
      if (pool.DomainOf(worker) != domain) strangers.fetch_add(1, std::memory_order_relaxed);
    });
    for (size_t d = 0; d < domains; ++d) {
      for (size_t i = 0; i < hits[d].size(); ++i) ASSERT_EQ(hits[d][i].load(), 1) << d << ", " << i << " of " << count;
    }
    EXPECT_EQ(strangers.load(), 0);
  }
}

// Both kinds of run in turn, some after a pause in which workers fall asleep: late workers must be harmless. Plain
// writes: the thread sanitizer checks them.
TEST_P(WorkerPoolShapes, BothKindsOfRunsInTurn) {
  WorkerPool pool(GetParam());
  std::vector<int64_t> numbers(40, 0);
  int64_t expected = 0;
  for (int round = 0; round < 600; ++round) {
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (round % 3 == 0) {
      pool.Run(40, [&](int64_t i, int) { numbers[static_cast<size_t>(i)] += 1; });
      ++expected;
      continue;
    }
    const auto part = [&](int domain) { return EvenPart(40, domain, pool.domains()); };
    pool.RunPerDomain([&](int domain) { return part(domain).size(); },
                      [&](int domain, int64_t i, int) { numbers[static_cast<size_t>(part(domain).begin + i)] += 2; });
    expected += 2;
  }
  for (const int64_t number : numbers) ASSERT_EQ(number, expected);
}

// The second phase of every domain reads what the first phase of all domains wrote, within one run.
TEST_P(WorkerPoolShapes, LaterIndicesMayWaitForEarlierOnes) {
  WorkerPool pool(GetParam());
  constexpr int64_t kTasks = 23;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> first(static_cast<size_t>(kTasks), 0);
    std::vector<int64_t> second(static_cast<size_t>(kTasks), 0);
    Countdown written;
    written.Reset(kTasks);
    const auto part = [&](int domain) { return EvenPart(kTasks, domain, pool.domains()); };
    pool.RunPerDomain([&](int domain) { return 2 * part(domain).size(); },
                      [&](int domain, int64_t index, int) {
                        const IndexRange mine = part(domain);
                        if (index < mine.size()) {
                          first[static_cast<size_t>(mine.begin + index)] = mine.begin + index + 1;
                          written.Arrive();
                          return;
                        }
                        written.Wait();
                        int64_t& sum = second[static_cast<size_t>(mine.begin + index - mine.size())];
                        for (const int64_t value : first) sum += value;
                      });
    for (const int64_t sum : second) ASSERT_EQ(sum, kTasks * (kTasks + 1) / 2);
  }
}

// Affinity of each worker during a run, by worker.
std::vector<std::vector<int>> CpusOfWorkers(WorkerPool& pool) {
  std::vector<std::vector<int>> cpus(static_cast<size_t>(pool.threads()));
  std::atomic<int> arrived{0};
  const int active = pool.active_threads();
  const auto workers_of = [&](int domain) { return CeilDiv(active - domain, pool.domains()); };
  pool.RunPerDomain(workers_of, [&](int, int64_t, int worker) {
    cpus[static_cast<size_t>(worker)] = AllowedCpus();
    arrived.fetch_add(1);
    while (arrived.load() < active) std::this_thread::yield();  // so that every worker takes one
  });
  return cpus;
}

TEST(WorkerPoolPinning, WorkersStayOnTheCpusOfTheirDomain) {
  const std::vector<int> allowed = AllowedCpus();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two CPUs";
  const std::vector<NumaDomain> domains = MakeNumaDomains(ReadNumaNodes(), 2);
  WorkerPool pool({.threads = 2, .domains = 2});
  const std::vector<std::vector<int>> cpus = CpusOfWorkers(pool);
  EXPECT_EQ(cpus[0], allowed) << "the caller is not pinned";
  EXPECT_EQ(cpus[1], domains[1].cpus);
  {
    const ScopedAffinity pinned = pool.PinCaller();
    EXPECT_EQ(AllowedCpus(), domains[0].cpus);
  }
  EXPECT_EQ(AllowedCpus(), allowed);
}

TEST(WorkerPoolPinning, RespectsTheAffinityOfTheProcess) {
  const std::vector<int> allowed = AllowedCpus();
  const int last[] = {allowed.back()};
  const ScopedAffinity narrowed(last);
  WorkerPool pool({.threads = 2, .domains = 2});
  for (const std::vector<int>& cpus : CpusOfWorkers(pool)) EXPECT_EQ(cpus, std::vector<int>{allowed.back()});
}

TEST(WorkerPoolPinning, NotPinnedWithOneDomainOrMoreThreadsThanCpusOrOnDemand) {
  const std::vector<int> allowed = AllowedCpus();
  const int many = 2 * static_cast<int>(allowed.size());
  for (const WorkerPool::Options& options :
       {WorkerPool::Options{.threads = 2}, WorkerPool::Options{.threads = 2 * many, .domains = 2},
        WorkerPool::Options{.threads = 2, .domains = 2, .pin = false}}) {
    WorkerPool pool(options);
    for (const std::vector<int>& cpus : CpusOfWorkers(pool)) EXPECT_EQ(cpus, allowed);
    const ScopedAffinity pinned = pool.PinCaller();
    EXPECT_EQ(AllowedCpus(), allowed);
  }
}

TEST(WorkerPoolLending, WorkersOnLentCpusTakePartWhenAsked) {
  const std::vector<int> allowed = AllowedCpus();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two CPUs";
  const int first[] = {allowed.front()};
  const std::vector<int> others(allowed.begin() + 1, allowed.end());
  const ScopedAffinity narrowed(first);
  for (const int domains : {1, 2}) {
    WorkerPool pool({.threads = 2, .domains = domains, .pin = true, .lent_cpus = others});
    const int all = 2 + static_cast<int>(others.size());
    ASSERT_EQ(pool.threads(), all);
    ASSERT_EQ(pool.own_threads(), 2);
    ASSERT_EQ(pool.active_threads(), 2);
    for (const int active : {2, all, 2, all}) {
      pool.SetActiveThreads(active);
      ASSERT_EQ(pool.active_threads(), active);
      const std::vector<std::vector<int>> cpus = CpusOfWorkers(pool);
      for (int worker = 0; worker < active; ++worker) {
        for (const int cpu : cpus[static_cast<size_t>(worker)]) {
          EXPECT_EQ(cpu != allowed.front(), worker >= 2) << "worker " << worker << " on CPU " << cpu;
        }
      }
    }
  }
}

// Runs of both kinds with every number of active workers in turn; late workers must not join runs without them. Plain
// writes: the thread sanitizer checks them.
TEST_P(WorkerPoolShapes, AnyNumberOfActiveWorkersBetweenRuns) {
  WorkerPool pool(GetParam());
  std::vector<int64_t> numbers(40, 0);
  std::atomic<int> strangers{0};
  int64_t expected = 0;
  for (int round = 0; round < 600; ++round) {
    const int active = pool.domains() + round * 7 % (pool.threads() - pool.domains() + 1);
    pool.SetActiveThreads(active);
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto check = [&](int worker) {
      if (worker >= active) strangers.fetch_add(1, std::memory_order_relaxed);
    };
    if (round % 2 == 0) {
      pool.Run(40, [&](int64_t i, int worker) {
        check(worker);
        numbers[static_cast<size_t>(i)] += 1;
      });
      ++expected;
      continue;
    }
    const auto part = [&](int domain) { return EvenPart(40, domain, pool.domains()); };
    pool.RunPerDomain([&](int domain) { return part(domain).size(); },
                      [&](int domain, int64_t i, int worker) {
                        check(worker);
                        if (pool.DomainOf(worker) != domain) strangers.fetch_add(1, std::memory_order_relaxed);
                        numbers[static_cast<size_t>(part(domain).begin + i)] += 2;
                      });
    expected += 2;
  }
  for (const int64_t number : numbers) ASSERT_EQ(number, expected);
  EXPECT_EQ(strangers.load(), 0);
}

TEST(WorkerPoolLending, ALimitHoldsUntilItIsLifted) {
  WorkerPool pool({.threads = 4, .domains = 2});
  pool.LimitActiveThreads(3);
  EXPECT_EQ(pool.active_threads(), 4) << "until the next choice";
  pool.SetActiveThreads(4);
  EXPECT_EQ(pool.active_threads(), 3);
  pool.SetActiveThreads(2);
  EXPECT_EQ(pool.active_threads(), 2);
  pool.LimitActiveThreads(1);
  pool.SetActiveThreads(4);
  EXPECT_EQ(pool.active_threads(), 2) << "one of each domain";
  pool.LimitActiveThreads(100);
  pool.SetActiveThreads(4);
  EXPECT_EQ(pool.active_threads(), 4);
}

TEST(WorkerPoolLending, ParkedWorkersUseNoTime) {
  WorkerPool pool({.threads = 1, .domains = 1, .pin = true, .lent_cpus = AllowedCpus()});
  pool.SetActiveThreads(pool.threads());
  pool.Run(64, [](int64_t, int) {});
  pool.SetActiveThreads(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the spinning
  const double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ProcessCpuSeconds() - before, 0.2 * 0.200);
}

class WorkerPoolThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, WorkerPoolThreads, ::testing::Values(1, 2, 3, 8));

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

// Plain writes by workers must be visible after Run, and earlier ones to the workers: the thread sanitizer checks this
// test.
TEST_P(WorkerPoolThreads, RunPublishesMemoryBothWays) {
  WorkerPool pool(GetParam());
  std::vector<int64_t> numbers(257, 1);
  for (int round = 0; round < 2000; ++round) {
    pool.Run(static_cast<int64_t>(numbers.size()), [&](int64_t i, int) { numbers[static_cast<size_t>(i)] += i; });
  }
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], 1 + 2000 * static_cast<int64_t>(i));
}

// Short runs of changing size, some after a pause in which workers fall asleep: late workers must be harmless.
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

TEST(WorkerPool, ThreadsThatTheSystemDoesNotHaveAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than any limit leaves";
#endif
  ChildProcess child([](const ChildProcess::Parent&) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = static_cast<rlim_t>(pages) * 4096 + (rlim_t{100} << 20);  // room for some stacks
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    const absl::Status status = CatchExceptions([] {
      const WorkerPool pool(1000);
      return absl::OkStatus();
    });
    return absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "1000 threads") &&
                   absl::StrContains(status.message(), "--threads")
               ? 0
               : 2;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST(WorkerPool, StartsAndStopsQuickly) {
  for (int i = 0; i < 50; ++i) {
    WorkerPool pool(1 + i % 5);
    if (i % 2 == 0) pool.Run(i, [](int64_t, int) {});
  }
}

}  // namespace
}  // namespace moestro
