#include "common/kv/layout.h"

#include <gtest/gtest.h>

#include <limits>

namespace moestro::kv {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(LayoutTest, PagesFollowSlotsOnAPageOfMemory) {
  const KvGeometry geometry = {
      .num_layers = 61, .kv_dim = 576, .page_tokens = 64, .page_count = 10, .lease_slots = 100};
  const KvLayout layout = ComputeKvLayout(geometry).value();
  EXPECT_EQ(geometry.page_bytes(), 61 * 576 * 64 * 2);
  EXPECT_EQ(layout.slots_offset, 256);
  EXPECT_EQ(layout.pages_offset, 16384);  // 256 + 100 * 128 = 13056, rounded up to 4096
  EXPECT_EQ(layout.total_bytes, 16384 + 10 * geometry.page_bytes());
}

TEST(LayoutTest, RejectsEveryNumberThatIsNotPositiveOrTooLarge) {
  const KvGeometry good = {.num_layers = 1, .kv_dim = 1, .page_tokens = 1, .page_count = 1, .lease_slots = 1};
  ASSERT_TRUE(ComputeKvLayout(good).ok());
  for (int64_t KvGeometry::*field : {&KvGeometry::num_layers, &KvGeometry::kv_dim, &KvGeometry::page_tokens,
                                     &KvGeometry::page_count, &KvGeometry::lease_slots}) {
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, -kMax, kMax, kMax / 2 + 1}) {
      KvGeometry geometry = good;
      geometry.*field = bad;
      EXPECT_EQ(ComputeKvLayout(geometry).status().code(), absl::StatusCode::kInvalidArgument) << bad;
    }
  }
}

// Keys are padded to 4 elements, values to 64 rows.
TEST(LayoutTest, PackedBlocksArePadded) {
  const auto block = [](int64_t kv_heads, int64_t dim) {
    return KvGeometry{.num_layers = 3, .kv_dim = 2 * kv_heads * dim, .kv_heads = kv_heads}.page_bytes() / 3;
  };
  EXPECT_EQ(block(8, 128), 64 * 2 * 8 * 128 * 2);
  EXPECT_EQ(block(2, 64), 64 * 2 * 2 * 64 * 2);
  EXPECT_EQ(block(2, 18), 2 * (64 * 20 + 64 * 64) * 2);
  EXPECT_EQ(block(1, 80), (64 * 80 + 128 * 64) * 2);
}

TEST(LayoutTest, RejectsHeadsThatDoNotMakeUpATokensElements) {
  const KvGeometry good = {.num_layers = 1, .kv_dim = 12, .kv_heads = 3, .page_count = 1, .lease_slots = 1};
  ASSERT_TRUE(ComputeKvLayout(good).ok());
  for (const int64_t bad : {int64_t{-1}, int64_t{4}, int64_t{12}, kMax, -kMax}) {
    KvGeometry geometry = good;
    geometry.kv_heads = bad;
    EXPECT_EQ(ComputeKvLayout(geometry).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  for (int64_t KvGeometry::*field : {&KvGeometry::kv_dim, &KvGeometry::page_tokens}) {
    KvGeometry geometry = good;
    geometry.*field = kMax - kMax % 6;
    EXPECT_EQ(ComputeKvLayout(geometry).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(LayoutTest, RejectsOverflowOfTheProduct) {
  const KvGeometry geometry = {.num_layers = int64_t{1} << 20,
                               .kv_dim = int64_t{1} << 20,
                               .page_tokens = int64_t{1} << 10,
                               .page_count = int64_t{1} << 14,
                               .lease_slots = 1};
  EXPECT_EQ(ComputeKvLayout(geometry).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::kv
