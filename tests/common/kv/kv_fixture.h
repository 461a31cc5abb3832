// A small pool and helpers for its tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "common/kv/lease_writer.h"
#include "common/kv/pool.h"
#include "tests/common/platform/test_name.h"

namespace moestro::testing {

inline constexpr uint64_t kEpoch = 5;
inline const std::string kFingerprint = "0123456789abcdef0123456789abcdef";

inline kv::KvGeometry SmallGeometry(int64_t page_count, int64_t lease_slots) {
  return {.num_layers = 3, .kv_dim = 16, .page_tokens = 4, .page_count = page_count, .lease_slots = lease_slots};
}

// The given parts, and total == free + leased + cached + draining.
inline void ExpectPages(const kv::KvPool& pool, int64_t leased, int64_t draining, int64_t cached = 0) {
  const kv::KvPool::Stats stats = pool.stats();
  EXPECT_EQ(stats.total_pages, pool.geometry().page_count);
  EXPECT_EQ(stats.leased_pages, leased);
  EXPECT_EQ(stats.draining_pages, draining);
  EXPECT_EQ(stats.cached_pages, cached);
  EXPECT_EQ(stats.free_pages, stats.total_pages - leased - draining - cached);
}

class KvPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<kv::KvPool> MakePool(int64_t page_count, int64_t lease_slots, const kv::KvPoolOptions& options = {}) {
    return kv::KvPool::Create(name_, kEpoch, {kFingerprint}, SmallGeometry(page_count, lease_slots), options).value();
  }
  std::shared_ptr<const kv::KvPoolMapping> Open() const {
    return kv::KvPoolMapping::Open(name_, {kFingerprint}).value();
  }
  static absl::StatusOr<std::unique_ptr<kv::LeaseWriter>> Acquire(std::shared_ptr<const kv::KvPoolMapping> mapping,
                                                                  const KvLease& lease) {
    return kv::LeaseWriter::Acquire(std::move(mapping), lease.slot, lease.id, lease.pages);
  }

  const TestName name_{"kv"};
};

}  // namespace moestro::testing
