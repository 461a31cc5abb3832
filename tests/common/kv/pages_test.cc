#include "common/kv/pages.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moestro::kv
