// Which experts stay on the device, and what the pages of the others bring.
#include "services/decode/throughput/weight_pages.h"

#include <gtest/gtest.h>

#include <map>

namespace moestro::decode {
namespace {

// Experts of two arrays each, with a gap between them; of different sizes if `mixed`.
std::vector<engine::Module> Experts(int64_t layers, int64_t experts, bool mixed = false) {
  std::vector<engine::Module> modules;
  uintptr_t source = 1 << 20;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      const int64_t first = 8192 + (mixed ? 4096 * (layer % 2) : 0), second = 5000;
      engine::ModuleImage image;
      image.ranges = {{reinterpret_cast<const uint8_t*>(source), first, 0},
                      {reinterpret_cast<const uint8_t*>(source + 100'000), second, first}};
      image.bytes = RoundUp(first + second, 4096);
      source += 200'000;
      modules.push_back({engine::ModuleKind::kExpert, 2 + layer, expert, 0, 0, image});
    }
  }
  return modules;
}

TEST(WeightPages, BringEveryByteOnceToWhereItsExpertIs) {
  for (const bool mixed : {false, true}) {
    for (int64_t resident = 0; resident <= 15; ++resident) {
      const WeightPages pages(Experts(3, 5, mixed), resident);
      int64_t stay = 0;
      for (const WeightPages::Expert& expert : pages.places()) stay += expert.resident ? 1 : 0;
      EXPECT_EQ(stay, resident);
      for (const int64_t parts : {1, 2, 3, 50}) {
        for (const int64_t layer : pages.streamed()) {
          std::map<int64_t, const uint8_t*> expected, actual;  // in the layer's place
          for (const WeightPages::Expert& expert : pages.places()) {
            if (expert.resident || expert.module->layer != layer) continue;
            for (const engine::StagedRange& range : expert.module->image.ranges) {
              for (int64_t i = 0; i < range.bytes; ++i) {
                expected[expert.offset + range.offset + i] = range.source + i;
              }
            }
          }
          for (int64_t page = 0; page < parts; ++page) {
            for (const engine::StagedRange& range : pages.Page(layer, page, parts)) {
              for (int64_t i = 0; i < range.bytes; ++i) {
                ASSERT_TRUE(actual.emplace(range.offset + i, range.source + i).second);
              }
            }
          }
          ASSERT_EQ(actual, expected) << resident << " stay, layer " << layer << ", " << parts << " pages";
          ASSERT_LE(expected.rbegin()->first, pages.place_bytes());
        }
      }
    }
  }
}

TEST(WeightPages, AreEqualParts) {
  const WeightPages pages(Experts(2, 64), 0);
  for (int64_t page = 0; page < 7; ++page) {
    int64_t bytes = 0;
    for (const engine::StagedRange& range : pages.Page(2, page, 7)) bytes += range.bytes;
    EXPECT_NEAR(static_cast<double>(bytes), 64 * 13192.0 / 7, 16384) << page;
  }
}

TEST(WeightPages, AsManyExpertsStayAsFit) {
  const int64_t bytes = 16384;  // of an expert
  const auto resident = [&](int64_t memory) {
    const auto most = WeightPages::MostResident(Experts(4, 6), memory);
    EXPECT_TRUE(!most.ok() || WeightPages(Experts(4, 6), *most).device_bytes() <= memory);
    return most.value_or(-1);
  };
  EXPECT_EQ(resident(12 * bytes - 1), -1);
  EXPECT_EQ(resident(12 * bytes), 0);      // two layers
  EXPECT_EQ(resident(14 * bytes - 1), 1);  // one layer has a free place, and the others none
  EXPECT_EQ(resident(14 * bytes), 4);      // one of each layer: 4, and two places of 5
  EXPECT_EQ(resident(24 * bytes), 24);
  EXPECT_EQ(resident(1000 * bytes), 24);
  const WeightPages all(Experts(4, 6), 24);
  EXPECT_TRUE(all.streamed().empty());
  EXPECT_EQ(all.streamed_bytes(), 0);
  EXPECT_EQ(WeightPages(Experts(4, 6), 22).streamed(), (std::vector<int64_t>{2, 4}));
}

}  // namespace
}  // namespace moestro::decode
