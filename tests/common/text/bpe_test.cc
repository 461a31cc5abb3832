#include "common/text/bpe.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/text/byte_level.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::text {
namespace {

using Ids = std::vector<int32_t>;

std::array<int32_t, 256> IdentityBytes() {
  std::array<int32_t, 256> ids;
  for (int byte = 0; byte < 256; ++byte) ids[byte] = byte;
  return ids;
}

// The definition: repeatedly find the lowest rank and merge the leftmost pair.
Ids EncodeByDefinition(const std::string& piece, const std::map<std::pair<int, int>, std::pair<int, int>>& rules) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    int best_rank = -1;
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule == rules.end() || (best_rank >= 0 && rule->second.first >= best_rank)) continue;
      best_rank = rule->second.first;
      best = i;
    }
    if (best_rank < 0) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeTest, AgreesWithTheDefinitionOnRandomRules) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<BpeMerge> merges;
    std::map<std::pair<int, int>, std::pair<int, int>> rules;
    std::vector<int> symbols = {'a', 'b', 'c'};
    const auto any_symbol = [&] { return symbols[random() % symbols.size()]; };
    for (int rank = 0; rank < 12; ++rank) {
      const int left = any_symbol();
      const int right = any_symbol();
      const int result = 1000 + rank;
      merges.push_back({static_cast<uint32_t>(rank), left, right, result});
      rules[{left, right}] = {rank, result};
      symbols.push_back(result);
    }
    std::shuffle(symbols.begin(), symbols.end(), random);
    const Bpe bpe({IdentityBytes()}, merges);
    for (int i = 0; i < 20; ++i) {
      std::string piece(random() % 40, ' ');
      for (char& c : piece) c = static_cast<char>('a' + random() % 3);
      Ids ids;
      ASSERT_TRUE(bpe.Encode(piece, &ids).ok());
      EXPECT_EQ(ids, EncodeByDefinition(piece, rules)) << piece;
    }
  }
}

TEST(BpeTest, MergesTheLeftmostOfEquals) {
  const Bpe bpe({IdentityBytes()}, {{0, 'a', 'a', 300}, {1, 300, 300, 301}});
  Ids ids;
  ASSERT_TRUE(bpe.Encode("aaaaaaa", &ids).ok());
  EXPECT_THAT(ids, testing::ElementsAre(301, 300, 'a'));
}

TEST(BpeTest, AppendsAndTakesTheEmptyPiece) {
  const Bpe bpe({IdentityBytes()}, {});
  Ids ids = {7};
  ASSERT_TRUE(bpe.Encode("", &ids).ok());
  ASSERT_TRUE(bpe.Encode(std::string("\0\xFF", 2), &ids).ok());
  EXPECT_THAT(ids, testing::ElementsAre(7, 0, 255));
}

TEST(ByteLevelTest, SpellsEveryByteAsOneOtherCodePoint) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string spelling = SpellBytes(bytes);
  EXPECT_EQ(UnspellBytes(spelling), bytes);
  EXPECT_EQ(SpellBytes(" \n~\x7F\xA1\xAD\xFF"), "\u0120\u010A~\u0121\u00A1\u0143\u00FF");
}

TEST(ByteLevelTest, KnowsWhatSpellsNothing) {
  for (const std::string text : {" ", "\u0144", "a\u00AD", "中", "<｜User｜>", "\xFF"}) {
    EXPECT_EQ(UnspellBytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace moestro::text
