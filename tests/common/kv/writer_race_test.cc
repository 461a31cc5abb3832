// Owner and writers race for the same slots: a page never changes while a writer holds it.
#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "tests/common/kv/kv_fixture.h"

namespace moestro::kv {
namespace {

using testing::ExpectPages;
using testing::KvPoolTest;

constexpr int kWriters = 4;
constexpr int kWriterRounds = 400;

// The first element of the first token in page `block`. Atomic, because ThreadSanitizer cannot see that the owner's and
// the writers' mappings of a lock are one lock.
std::atomic_ref<uint16_t> Cell(const LeaseWriter& writer, int64_t block) {
  return std::atomic_ref(*writer.pages().Block(0, block));
}

int64_t Blocks(const LeaseWriter& writer) { return writer.pages().capacity() / writer.pages().geometry().page_tokens; }

void Mark(const LeaseWriter& writer, uint16_t mark) {
  for (int64_t block = 0; block < Blocks(writer); ++block) Cell(writer, block) = mark;
}

bool IsMarked(const LeaseWriter& writer, uint16_t mark) {
  for (int64_t block = 0; block < Blocks(writer); ++block) {
    if (Cell(writer, block) != mark) return false;
  }
  return true;
}

TEST_F(KvPoolTest, PagesOfARevokedWriterStayItsOwn) {
  const auto pool = MakePool(12, 5);
  const auto mapping = Open();
  std::atomic<int> intruders{0};
  std::atomic<int> written{0};
  const auto run = [&](int thread) {
    std::mt19937 random(thread);
    std::optional<KvLease> old;
    for (int round = 0; round < kWriterRounds; ++round) {
      const absl::StatusOr<KvLease> lease = pool->Reserve({.capacity = 1 + static_cast<int64_t>(random() % 16)});
      if (!lease.ok()) continue;
      if (old) Acquire(mapping, *old).status().IgnoreError();  // a late caller, often on another lease's new slot
      const auto writer = Acquire(mapping, *lease);
      if (!writer.ok()) {  // a late caller was just looking at the slot
        pool->Release(*lease);
        continue;
      }
      const auto mark = static_cast<uint16_t>(lease->id);
      Mark(**writer, mark);
      pool->Release(*lease);  // from here on the other threads compete for these pages
      for (int i = 0; i < 20; ++i) pool->Sweep();
      if (!IsMarked(**writer, mark)) ++intruders;
      ++written;
      old = *lease;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kWriters; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(intruders, 0);
  EXPECT_GT(written, kWriterRounds / 4);
  pool->Sweep();
  ExpectPages(*pool, 0, 0);
  EXPECT_EQ(pool->stats().leases, 0);
}

// The owner ends a lease at the moment a writer takes it. A successful writer must hold a lease that lasts. Had it been
// freed between the writer's first check and its lock, the slot would be free or another lease's.
TEST_F(KvPoolTest, AcquireAtTheMomentOfReleaseNeverHoldsAFreedLease) {
  constexpr auto kTime = std::chrono::milliseconds(400);
  const auto pool = MakePool(4, 1);
  const auto mapping = Open();
  std::atomic<uint64_t> current{0};
  std::atomic<bool> stop{false};
  int64_t held_leases = 0;
  int64_t stale = 0;
  std::thread writer([&] {
    while (!stop) {
      const KvLease lease{.slot = 0, .id = current, .pages = {0}};
      const auto held = Acquire(mapping, lease);
      if (!held.ok()) continue;
      ++held_leases;
      if (mapping->slot(0)->lease_id != lease.id) ++stale;
    }
  });
  for (const auto end = std::chrono::steady_clock::now() + kTime; std::chrono::steady_clock::now() < end;) {
    const absl::StatusOr<KvLease> lease = pool->Reserve({.capacity = 1});
    if (!lease.ok()) continue;  // the last one is still draining
    current = lease->id;
    pool->Release(*lease);
  }
  stop = true;
  writer.join();
  EXPECT_EQ(stale, 0) << "of " << held_leases;
  pool->Sweep();
  ExpectPages(*pool, 0, 0);
}

}  // namespace
}  // namespace moestro::kv
