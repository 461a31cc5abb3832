#include "common/text/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <string>

#include "common/text/byte_level.h"
#include "common/text/deepseek_patterns.h"
#include "common/text/pre_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/golden.h"

namespace moestro {
namespace {

using nlohmann::json;
using testing::Pair;

std::string Corpus() { return ReadGolden("make_golden.py") + ReadGolden("templates/qwen3.jinja"); }

TEST(BpeTrainerTest, MergesTheMostFrequentPairFirst) {
  const auto trained = TrainBpe("abc abc abd", 10);
  ASSERT_TRUE(trained.ok()) << trained.status();
  // "abc" once, " abc" once, " abd" once: a b 3 times, then " ab" and "ab c" twice each, " " being the smaller byte.
  EXPECT_THAT(trained->merges, testing::ElementsAre(Pair("a", "b"), Pair("\u0120", "ab")));
  ASSERT_EQ(trained->tokens.size(), 258u);
  EXPECT_EQ(trained->tokens[256], "ab");
  EXPECT_EQ(trained->tokens[257], "\u0120ab");
}

TEST(BpeTrainerTest, FirstTokensAreTheBytes) {
  const auto trained = TrainBpe("", 5);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE(trained->merges.empty());
  ASSERT_EQ(trained->tokens.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(UnspellBytes(trained->tokens[byte]), std::string(1, static_cast<char>(byte)));
  }
}

TEST(BpeTrainerTest, StopsWhenNothingRepeats) {
  EXPECT_TRUE(TrainBpe("abcdefg", 10)->merges.empty());
  EXPECT_EQ(TrainBpe("aaaa", 10)->merges.size(), 1u);
}

// The definition: count every pair in every piece, merge the best, again.
std::vector<std::pair<std::string, std::string>> TrainByDefinition(const std::string& corpus, int merges) {
  const auto pre_tokenizer = PreTokenizer::Create(kDeepSeekV3Patterns);
  std::vector<std::vector<std::string>> words;
  const std::vector<std::string_view> pieces = pre_tokenizer->Split(corpus).value();
  for (const std::string_view piece : pieces) {
    words.emplace_back();
    for (const char byte : piece) words.back().emplace_back(1, byte);
  }
  std::vector<std::pair<std::string, std::string>> result;
  while (static_cast<int>(result.size()) < merges) {
    std::map<std::pair<std::string, std::string>, int> counts;  // in the order of bytes
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    result.emplace_back(SpellBytes(left), SpellBytes(right));
    for (auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] += right;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return result;
}

TEST(BpeTrainerTest, AgreesWithTheDefinition) {
  EXPECT_EQ(TrainBpe(Corpus(), 150)->merges, TrainByDefinition(Corpus(), 150));
}

TEST(BpeTrainerTest, MakesATokenizer) {
  const auto trained = TrainBpe(Corpus(), 400);
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_EQ(trained->merges.size(), 400u);
  EXPECT_EQ(TrainBpe(Corpus(), 400)->merges, trained->merges);
  json file = ReadGoldenJson("tokenizer.json");
  file["added_tokens"] = json::array();
  file["post_processor"] = nullptr;
  file["model"]["merges"] = trained->merges;
  file["model"]["vocab"] = json::object();
  for (size_t id = 0; id < trained->tokens.size(); ++id) file["model"]["vocab"][trained->tokens[id]] = id;
  const auto tokenizer = MakeTokenizer(file);
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = Corpus();
  const auto ids = tokenizer->Encode(text, {});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(tokenizer->Decode(*ids, /*skip_special=*/false), text);
  EXPECT_LT(ids->size() * 2, text.size());
}

TEST(BpeTrainerTest, RefusesBadInput) {
  EXPECT_EQ(TrainBpe("\xFF", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TrainBpe("a", -1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moestro
