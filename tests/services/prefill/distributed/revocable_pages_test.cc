#include "services/prefill/distributed/revocable_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace moestro::prefill {
namespace {

constexpr kv::KvGeometry kGeometry{.num_layers = 2, .kv_dim = 4, .page_tokens = 8, .page_count = 3, .lease_slots = 0};

TEST(RevocablePagesTest, CopiesRunsOfPositionsThroughPages) {
  std::vector<uint8_t> pool(static_cast<size_t>(kGeometry.page_count * kGeometry.page_bytes()));
  std::vector<uint32_t> numbers = {2, 0, 1};
  const kv::KvPages pages(kGeometry, pool.data(), numbers);
  RevocablePages revocable(pages);
  std::vector<uint16_t> rows(13 * 4);
  std::iota(rows.begin(), rows.end(), 1);
  ASSERT_TRUE(revocable.Write(1, {5, 18}, reinterpret_cast<const uint8_t*>(rows.data())).ok());
  for (int64_t position = 5; position < 18; ++position) {
    EXPECT_EQ(pages.Token(1, position)[3], (position - 5) * 4 + 4) << position;
    EXPECT_EQ(pages.Token(0, position)[3], 0);
  }
  std::vector<uint16_t> back(rows.size());
  ASSERT_TRUE(revocable.Read(1, {5, 18}, reinterpret_cast<uint8_t*>(back.data())).ok());
  EXPECT_EQ(back, rows);
}

TEST(RevocablePagesTest, NobodyPassesWhenItIsShut) {
  std::vector<uint8_t> pool(static_cast<size_t>(kGeometry.page_count * kGeometry.page_bytes()));
  auto numbers = std::make_unique<std::vector<uint32_t>>(std::vector<uint32_t>{0});
  RevocablePages revocable(kv::KvPages(kGeometry, pool.data(), *numbers));
  numbers.reset();  // a lease's list goes with it
  revocable.Revoke();
  std::vector<uint8_t> row(8, 1);
  EXPECT_TRUE(absl::IsCancelled(revocable.Write(0, {0, 1}, row.data())));
  EXPECT_TRUE(absl::IsCancelled(revocable.Read(0, {0, 1}, row.data())));
  EXPECT_THAT(pool, ::testing::Each(0));
  EXPECT_EQ(revocable.pages().capacity(), 8);
}

TEST(RevocablePagesTest, OfNoPagesTakesEverything) {
  const RevocablePages revocable((kv::KvPages()));
  EXPECT_TRUE(revocable.Write(0, {0, 100}, nullptr).ok());
}

}  // namespace
}  // namespace moestro::prefill
