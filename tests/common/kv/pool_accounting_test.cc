// Long random runs against a simple model: no page is ever in two hands, none is lost.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "common/base/math.h"
#include "tests/common/kv/kv_fixture.h"

namespace moestro {
namespace {

using testing::KvPoolTest;

constexpr int64_t kPages = 40;
constexpr int64_t kSlots = 12;
constexpr int64_t kPageTokens = 4;

struct HeldLease {
  KvLease lease;
  std::unique_ptr<LeaseWriter> writer;
};

// What the pool should hold. Free pages and slots as ordered sets, so that "lowest first" is what begin() says.
class Model {
 public:
  Model() {
    for (int64_t i = 0; i < kPages; ++i) free_.insert(i);
  }

  const std::set<uint32_t>& free() const { return free_; }
  void Lease(const KvLease& lease) {
    for (const uint32_t page : lease.pages) ASSERT_EQ(free_.erase(page), 1u) << "page " << page << " is not free";
    leased_ += lease.pages.size();
  }
  void Drain(const KvLease& lease) {
    leased_ -= lease.pages.size();
    draining_ += lease.pages.size();
  }
  void FreeLeased(const KvLease& lease) {
    Drain(lease);
    FreeDrained(lease);
  }
  void FreeDrained(const KvLease& lease) {
    draining_ -= lease.pages.size();
    free_.insert(lease.pages.begin(), lease.pages.end());
  }
  void ExpectSame(const KvPool& pool, int64_t leases) const {
    const KvPool::Stats stats = pool.stats();
    ASSERT_EQ(stats.total_pages, kPages);
    ASSERT_EQ(stats.free_pages, static_cast<int64_t>(free_.size()));
    ASSERT_EQ(stats.leased_pages, leased_);
    ASSERT_EQ(stats.draining_pages, draining_);
    ASSERT_EQ(stats.total_pages, stats.free_pages + stats.leased_pages + stats.draining_pages);
    ASSERT_EQ(stats.leases, leases);
  }

 private:
  std::set<uint32_t> free_;
  int64_t leased_ = 0;
  int64_t draining_ = 0;
};

class AccountingTest : public KvPoolTest {
 protected:
  void SetUp() override {
    pool_ = MakePool(kPages, kSlots);
    mapping_ = Open();
  }

  size_t Pick(const std::vector<HeldLease>& from) { return random_() % from.size(); }

  static HeldLease TakeOut(std::vector<HeldLease>& from, size_t index) {
    std::swap(from[index], from.back());
    HeldLease held = std::move(from.back());
    from.pop_back();
    return held;
  }

  // Draining leases whose writer is gone become free.
  void SweepModel() {
    std::erase_if(draining_, [&](const HeldLease& held) {
      if (held.writer != nullptr) return false;
      model_.FreeDrained(held.lease);
      return true;
    });
  }

  void Reserve() {
    const int64_t tokens = 1 + static_cast<int64_t>(random_() % (12 * kPageTokens));
    const size_t pages = CeilDiv(tokens, kPageTokens);
    SweepModel();
    const bool fits = pages <= model_.free().size() && live_.size() + draining_.size() < kSlots;
    absl::StatusOr<KvLease> lease = pool_->Reserve({.capacity = tokens});
    ASSERT_EQ(lease.ok(), fits);
    if (!fits) return;
    ASSERT_TRUE(std::ranges::equal(
        lease->pages, std::ranges::subrange(model_.free().begin(), std::next(model_.free().begin(), pages))));
    model_.Lease(*lease);
    live_.push_back({.lease = *std::move(lease), .writer = nullptr});
  }

  void Release() {
    if (live_.empty()) return;
    HeldLease held = TakeOut(live_, Pick(live_));
    pool_->Release(held.lease);
    if (held.writer == nullptr) {
      model_.FreeLeased(held.lease);
      over_.push_back(held.lease);
    } else {
      ASSERT_TRUE(held.writer->revoked());
      model_.Drain(held.lease);
      draining_.push_back(std::move(held));
    }
  }

  void StartWriting() {
    if (live_.empty()) return;
    HeldLease& held = live_[Pick(live_)];
    absl::StatusOr<std::unique_ptr<LeaseWriter>> writer = Acquire(mapping_, held.lease);
    ASSERT_EQ(writer.status().code(), held.writer == nullptr ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable);
    if (writer.ok()) held.writer = *std::move(writer);
  }

  void StopWriting(std::vector<HeldLease>& leases) {
    if (!leases.empty()) leases[Pick(leases)].writer.reset();
  }

  void UseOldLease() {
    if (over_.empty()) return;
    const KvLease& lease = over_[random_() % over_.size()];
    ASSERT_EQ(Acquire(mapping_, lease).status().code(), absl::StatusCode::kAborted);
    pool_->Release(lease);
    ASSERT_EQ(pool_->ValidTokens(lease), 0);
  }

  void Step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
        return Reserve();
      case 3:
      case 4:
        return Release();
      case 5:
        return StartWriting();
      case 6:
        return StopWriting(live_);
      case 7:
        return StopWriting(draining_);
      case 8:
        return UseOldLease();
      default:
        pool_->Sweep();
        SweepModel();
    }
  }

  std::mt19937 random_{20240607};
  std::unique_ptr<KvPool> pool_;
  std::shared_ptr<const KvPoolMapping> mapping_;
  Model model_;
  std::vector<HeldLease> live_;
  std::vector<HeldLease> draining_;
  std::vector<KvLease> over_;
};

TEST_F(AccountingTest, RandomSteps) {
  for (int step = 0; step < 20000; ++step) {
    Step();
    if (!HasFatalFailure()) model_.ExpectSame(*pool_, static_cast<int64_t>(live_.size()));
    ASSERT_FALSE(HasFatalFailure()) << "step " << step;
  }
  while (!live_.empty()) Release();
  draining_.clear();
  pool_->Sweep();
  EXPECT_EQ(pool_->stats().free_pages, kPages);
}

}  // namespace
}  // namespace moestro
