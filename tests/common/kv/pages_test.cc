#include "common/kv/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moestro::kv {
namespace {

TEST(PagesTest, AddressesFollowThePageList) {
  const KvGeometry geometry = {.num_layers = 2, .kv_dim = 3, .page_tokens = 4, .page_count = 5, .lease_slots = 1};
  std::vector<uint16_t> memory(5 * 2 * 4 * 3);
  const std::vector<uint32_t> list = {4, 1};
  const KvPages pages(geometry, reinterpret_cast<uint8_t*>(memory.data()), list);
  EXPECT_EQ(pages.capacity(), 8);
  EXPECT_EQ(pages.Block(0, 0), memory.data() + 4 * 24);
  EXPECT_EQ(pages.Block(1, 1), memory.data() + 1 * 24 + 12);
  EXPECT_EQ(pages.Token(1, 6), memory.data() + 1 * 24 + 12 + 2 * 3);
  EXPECT_EQ(pages.page(1), 1u);
  EXPECT_EQ(pages.PageMemory(0), reinterpret_cast<const uint8_t*>(memory.data() + 4 * 24));
  EXPECT_EQ(pages.lease(), 0u);
  EXPECT_EQ(KvPages(geometry, reinterpret_cast<uint8_t*>(memory.data()), list, 7).lease(), 7u);
  EXPECT_EQ(KvPages().capacity(), 0);
}

constexpr int64_t kHeads = 3, kDim = 70, kEntry = 2 * kHeads * kDim;

class PackedPagesTest : public ::testing::Test {
 protected:
  // Number i of a token's entry: none is zero, all of one token differ.
  static std::vector<uint16_t> Entry(int64_t position) {
    std::vector<uint16_t> entry(kEntry);
    for (int64_t i = 0; i < kEntry; ++i)
      entry[static_cast<size_t>(i)] = static_cast<uint16_t>(position * kEntry + i + 1);
    return entry;
  }
  std::vector<uint16_t> Read(int64_t layer, int64_t position) const {
    std::vector<uint16_t> entry(kEntry);
    pages_.Read(layer, position, entry.data());
    return entry;
  }
  uint16_t* Head(int64_t layer, int64_t block, int64_t head) const {
    return pages_.Block(layer, block) + head * (64 * 72 + 128 * 64);
  }

  const KvGeometry geometry_ = {.num_layers = 2, .kv_dim = kEntry, .kv_heads = kHeads, .page_count = 3};
  std::vector<uint16_t> memory_ = std::vector<uint16_t>(static_cast<size_t>(3 * geometry_.page_bytes() / 2), kPoison);
  const std::vector<uint32_t> list_ = {2, 0};
  const KvPages pages_{geometry_, reinterpret_cast<uint8_t*>(memory_.data()), list_};
};

// The layout byte by byte: another one is another version of the pool.
TEST_F(PackedPagesTest, ANumbersPlace) {
  EXPECT_EQ(pages_.Block(1, 0), memory_.data() + (2 * 2 + 1) * kHeads * (64 * 72 + 128 * 64));
  pages_.Store(1, 64 + 37, Entry(5).data());
  for (int64_t head = 0; head < kHeads; ++head) {
    const uint16_t* const keys = Head(1, 1, head);
    const uint16_t* const values = keys + 64 * 72;
    for (int64_t i = 0; i < kDim; ++i) {
      const auto at = static_cast<size_t>(head * kDim + i);
      // [pair of dims][64 tokens][2]
      EXPECT_EQ(keys[i / 2 * 128 + 37 * 2 + i % 2], Entry(5)[at]);
      // [64 dims][pair of tokens][64][2]
      EXPECT_EQ(values[i / 64 * 64 * 64 + 37 / 2 * 128 + i % 64 * 2 + 1], Entry(5)[at + kHeads * kDim]);
    }
  }
  EXPECT_EQ(std::ranges::count_if(memory_, [](uint16_t x) { return x != kPoison; }), kEntry);
}

TEST_F(PackedPagesTest, ReadsWhatWasStored) {
  std::vector<uint16_t> entries;
  for (int64_t position = 3; position < 100; ++position) {
    const std::vector<uint16_t> entry = Entry(position);
    entries.insert(entries.end(), entry.begin(), entry.end());
  }
  pages_.StoreRows(1, {3, 100}, entries.data());
  for (int64_t position = 3; position < 100; ++position) EXPECT_EQ(Read(1, position), Entry(position));
  std::vector<uint16_t> got(entries.size());
  pages_.ReadRows(1, {3, 100}, got.data());
  EXPECT_EQ(got, entries);
  EXPECT_EQ(Read(0, 50), std::vector<uint16_t>(kEntry, kPoison)) << "another layer";
}

// Products multiply the values of absent tokens by zero.
TEST_F(PackedPagesTest, AbsentTokensOfABegunBlockHaveFiniteValues) {
  const auto poisoned_values = [this](int64_t block) {
    int64_t count = 0;
    for (int64_t head = 0; head < kHeads; ++head) {
      count += std::count(Head(0, block, head) + 64 * 72, Head(0, block, head) + 64 * 72 + 128 * 64, kPoison);
    }
    return count;
  };
  const int64_t all = kHeads * 128 * 64;
  pages_.BeginBlocks(0, 0, 64);
  EXPECT_EQ(poisoned_values(0), all) << "none is absent";
  pages_.BeginBlocks(0, 1, 60);
  EXPECT_EQ(poisoned_values(0), all) << "it was begun before";
  pages_.BeginBlocks(0, 0, 1);
  EXPECT_EQ(poisoned_values(0), 0);
  pages_.Store(0, 0, Entry(0).data());
  pages_.BeginBlocks(0, 1, 65);
  EXPECT_EQ(poisoned_values(1), 0);
  EXPECT_EQ(Read(0, 0), Entry(0)) << "earlier tokens stay";
}

}  // namespace
}  // namespace moestro::kv
