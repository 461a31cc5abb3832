// Long random runs against a simple model: no page is ever held twice or lost, the prefix cache finds and evicts the
// right pages, and no lease ever reads another conversation's KV.
#include <algorithm>
#include <random>
#include <set>

#include "common/base/math.h"
#include "tests/common/kv/kv_fixture.h"
#include "tests/common/kv/naive_prefix_tree.h"
#include "tests/common/kv/page_content.h"

namespace moestro::kv {
namespace {

using testing::HoldsBlocks;
using testing::KvPoolTest;
using testing::NaivePrefixTree;
using testing::Tokens;
using testing::WriteBlocks;

constexpr int64_t kPages = 40;
constexpr int64_t kSlots = 12;
constexpr int64_t kPageTokens = 4;
constexpr int kSteps = 30000;

struct HeldLease {
  KvLease lease;
  std::string scope;
  Tokens tokens;  // the whole conversation: as many as the pool could hold
  int64_t valid = 0;
  int64_t cached_blocks = 0;  // blocks whose path is held in the tree
  std::unique_ptr<LeaseWriter> writer;

  std::span<const int32_t> Prefix(int64_t blocks) const { return std::span(tokens).first(blocks * kPageTokens); }
};

// The pool's expected contents. Free pages are an ordered set, so begin() is the lowest.
class PoolModel {
 public:
  PoolModel() {
    for (int64_t i = 0; i < kPages; ++i) free_.insert(i);
  }

  // The pages of a new lease; nothing if it does not fit.
  std::vector<uint32_t> Reserve(const std::string& scope, std::span<const int32_t> found_in, int64_t blocks) {
    std::vector<uint32_t> pages = tree_.Match(scope, found_in);
    const auto found = static_cast<int64_t>(pages.size());
    const int64_t kept = std::ranges::count_if(pages, [&](uint32_t page) { return tree_.IsIdle(page); });
    if (blocks - found > static_cast<int64_t>(free_.size()) + tree_.idle_pages() - kept) return {};
    tree_.Hold(scope, found_in.first(found * kPageTokens));
    Take(blocks - found, pages);
    return pages;
  }
  bool Grow(int64_t count, std::vector<uint32_t>& pages) {
    if (count > static_cast<int64_t>(free_.size()) + tree_.idle_pages()) return false;
    Take(count, pages);
    return true;
  }
  void Cache(HeldLease& held, int64_t end) {
    for (; held.cached_blocks < end; ++held.cached_blocks) {
      const uint32_t page = held.lease.pages[held.cached_blocks];
      if (tree_.Extend(held.scope, held.Prefix(held.cached_blocks + 1), page)) --own_;
    }
  }
  void Drain(const HeldLease& held) {
    own_ -= OwnPages(held).size();
    draining_ += OwnPages(held).size();
  }
  void Free(const HeldLease& held) {
    for (const uint32_t page : OwnPages(held)) ASSERT_TRUE(free_.insert(page).second) << "page " << page << " is free";
    draining_ -= OwnPages(held).size();
    tree_.Drop(held.scope, held.Prefix(held.cached_blocks));
  }
  void ExpectSame(const KvPool& pool, int64_t leases) const {
    const KvPool::Stats stats = pool.stats();
    ASSERT_EQ(stats.total_pages, kPages);
    ASSERT_EQ(stats.free_pages, static_cast<int64_t>(free_.size()));
    ASSERT_EQ(stats.leased_pages, own_ + tree_.held_pages());
    ASSERT_EQ(stats.cached_pages, tree_.idle_pages());
    ASSERT_EQ(stats.draining_pages, draining_);
    ASSERT_EQ(stats.shared_pages, tree_.shared_pages());
    ASSERT_EQ(stats.total_pages, stats.free_pages + stats.leased_pages + stats.cached_pages + stats.draining_pages);
    ASSERT_EQ(stats.evicted_pages, evicted_);
    ASSERT_EQ(stats.leases, leases);
  }

 private:
  std::vector<uint32_t> OwnPages(const HeldLease& held) const {
    std::vector<uint32_t> pages;
    std::ranges::copy_if(held.lease.pages, std::back_inserter(pages),
                         [&](uint32_t page) { return !tree_.Contains(page); });
    return pages;
  }

  void Take(int64_t count, std::vector<uint32_t>& pages) {
    for (; static_cast<int64_t>(free_.size()) < count; ++evicted_) free_.insert(tree_.Evict());
    own_ += count;
    for (int64_t i = 0; i < count; ++i) pages.push_back(free_.extract(free_.begin()).value());
  }

  std::set<uint32_t> free_;
  NaivePrefixTree tree_{kPageTokens};
  int64_t own_ = 0;
  int64_t draining_ = 0;
  int64_t evicted_ = 0;
};

class AccountingTest : public KvPoolTest {
 protected:
  void SetUp() override {
    pool_ = MakePool(kPages, kSlots);
    mapping_ = Open();
  }

  int64_t Random(int64_t below) { return static_cast<int64_t>(random_() % below); }
  size_t Pick(const std::vector<HeldLease>& from) { return random_() % from.size(); }

  static HeldLease TakeOut(std::vector<HeldLease>& from, size_t index) {
    std::swap(from[index], from.back());
    HeldLease held = std::move(from.back());
    from.pop_back();
    return held;
  }

  // Pages of equal tokens, so that many conversations begin alike.
  Tokens Conversation() {
    Tokens tokens;
    for (int64_t block = 0; block < kPages; ++block) tokens.insert(tokens.end(), kPageTokens, Random(5) / 4);
    return tokens;
  }

  // Draining leases whose writer is gone become free.
  void SweepModel() {
    std::erase_if(draining_, [&](const HeldLease& held) {
      if (held.writer != nullptr) return false;
      model_.Free(held);
      return true;
    });
  }

  void Reserve() {
    HeldLease held;
    held.scope = std::string(Random(8) / 7, 's');
    held.tokens = Conversation();
    const int64_t tokens = Random(12 * kPageTokens);
    const int64_t capacity = std::max<int64_t>(1, tokens + Random(2 * kPageTokens));
    const bool ignore_cache = Random(8) == 0;
    SweepModel();
    const auto found_in = std::span(held.tokens).first(ignore_cache ? 0 : std::max<int64_t>(0, tokens - 1));
    std::vector<uint32_t> expected;
    if (live_.size() + draining_.size() < kSlots) {
      expected = model_.Reserve(held.scope, found_in, CeilDiv(capacity, kPageTokens));
    }
    absl::StatusOr<KvLease> lease = pool_->Reserve({.tokens = std::span(held.tokens).first(tokens),
                                                    .capacity = capacity,
                                                    .cache_scope = held.scope,
                                                    .ignore_cache = ignore_cache});
    ASSERT_EQ(lease.ok(), !expected.empty());
    if (!lease.ok()) return;
    ASSERT_EQ(lease->pages, expected);
    held.lease = *std::move(lease);
    held.valid = held.lease.cached_tokens;
    held.cached_blocks = held.valid / kPageTokens;
    ASSERT_EQ(pool_->ValidTokens(held.lease), held.valid);
    found_ += held.valid;
    live_.push_back(std::move(held));
  }

  void Grow() {
    if (live_.empty()) return;
    HeldLease& held = live_[Pick(live_)];
    const int64_t blocks = std::min(kPages, static_cast<int64_t>(held.lease.pages.size()) + Random(4));
    SweepModel();
    std::vector<uint32_t> expected = held.lease.pages;
    const bool fits = model_.Grow(blocks - static_cast<int64_t>(expected.size()), expected);
    ASSERT_EQ(pool_->Grow(held.lease, blocks * kPageTokens).ok(), fits);
    ASSERT_EQ(held.lease.pages, expected);
    pool_->Sweep();  // Grow sweeps only if there is something to grow
  }

  // Computes some more tokens.
  void Publish() {
    if (live_.empty()) return;
    HeldLease& held = live_[Pick(live_)];
    const auto capacity = static_cast<int64_t>(held.lease.pages.size()) * kPageTokens;
    const int64_t valid = held.valid + Random(capacity - held.valid + 1);
    WriteBlocks(pool_->Pages(held.lease), held.tokens, held.valid / kPageTokens, valid / kPageTokens);
    held.valid = valid;
    pool_->PublishValidTokens(held.lease, valid);
  }

  void Cache() {
    if (live_.empty()) return;
    HeldLease& held = live_[Pick(live_)];
    const int64_t tokens = Random(4) == 0 ? Random(held.valid + 1) : kPages * kPageTokens;
    model_.Cache(held, std::min(held.valid, tokens) / kPageTokens);
    pool_->Cache(held.lease, std::span(held.tokens).first(tokens));
  }

  void Release() {
    if (live_.empty()) return;
    HeldLease held = TakeOut(live_, Pick(live_));
    pool_->Release(held.lease);
    model_.Drain(held);
    if (held.writer == nullptr) {
      model_.Free(held);
      over_.push_back(held.lease);
    } else {
      ASSERT_TRUE(held.writer->revoked());
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
    KvLease lease = over_[random_() % over_.size()];
    ASSERT_EQ(Acquire(mapping_, lease).status().code(), absl::StatusCode::kAborted);
    pool_->Release(lease);
    pool_->Cache(lease, Conversation());
    ASSERT_EQ(pool_->Grow(lease, kPages * kPageTokens).code(), absl::StatusCode::kAborted);
    ASSERT_EQ(pool_->ValidTokens(lease), 0);
  }

  void Step() {
    switch (random_() % 14) {
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
      case 9:
        return Grow();
      case 10:
      case 11:
        return Publish();
      case 12:
        return Cache();
      default:
        pool_->Sweep();
        SweepModel();
    }
  }

  void ExpectOwnContent() const {
    for (const HeldLease& held : live_) {
      ASSERT_EQ(pool_->ValidTokens(held.lease), held.valid);
      ASSERT_TRUE(HoldsBlocks(pool_->Pages(held.lease), held.tokens, held.valid / kPageTokens));
    }
  }

  std::mt19937 random_{20240607};
  std::unique_ptr<KvPool> pool_;
  std::shared_ptr<const KvPoolMapping> mapping_;
  PoolModel model_;
  std::vector<HeldLease> live_;
  std::vector<HeldLease> draining_;
  std::vector<KvLease> over_;
  int64_t found_ = 0;
};

TEST_F(AccountingTest, RandomSteps) {
  for (int step = 0; step < kSteps; ++step) {
    Step();
    if (!HasFatalFailure()) model_.ExpectSame(*pool_, static_cast<int64_t>(live_.size()));
    if (!HasFatalFailure()) ExpectOwnContent();
    ASSERT_FALSE(HasFatalFailure()) << "step " << step;
  }
  EXPECT_EQ(pool_->stats().prefix_hit_tokens, found_);
  EXPECT_GT(found_, kSteps / 2) << "the run must find something";
  EXPECT_GT(pool_->stats().evicted_pages, kSteps / 20);
  while (!live_.empty()) Release();
  draining_.clear();
  pool_->Sweep();
  EXPECT_EQ(pool_->stats().free_pages + pool_->stats().cached_pages, kPages);
  EXPECT_TRUE(pool_->Reserve({.capacity = kPages * kPageTokens}).ok());
}

}  // namespace
}  // namespace moestro::kv
