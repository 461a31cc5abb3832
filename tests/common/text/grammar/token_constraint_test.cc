#include "common/text/grammar/token_constraint.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "tests/common/text/golden.h"
#include "tests/common/text/grammar/grammar_fixture.h"
#include "tests/common/text/grammar/published_tokenizer.h"

namespace moestro::text::grammar {
namespace {

using Kind = Constraint::Kind;

class TokenConstraintTest : public testing::TestWithParam<const char*> {
 protected:
  TokenConstraintTest()
      : tokenizer_(PublishedTokenizer(GetParam())),
        trie_(std::make_shared<const TokenTrie>(*tokenizer_, tokenizer_->size() + kPadding)),
        stop_(SpecialToken(*tokenizer_)) {}

  static constexpr int kPadding = 70;

  std::shared_ptr<VocabularyGrammar> Compile(Kind kind, const std::string& text) const {
    return std::make_shared<VocabularyGrammar>(CompileAlone({kind, text}).value(), trie_);
  }

  // The ids that may follow `text`, found one by one.
  std::vector<int32_t> Expected(const VocabularyGrammar& grammar, const std::string& text) const {
    std::vector<int32_t> ids;
    Matcher matcher(grammar.automaton);
    const auto follow = [&](Matcher::Configuration at, const std::string& bytes) {
      for (const char byte : bytes) at = matcher.Next(at, static_cast<uint8_t>(byte));
      return at;
    };
    const Matcher::Configuration here = follow(matcher.start(), text);
    for (int32_t id = 0; id < tokenizer_->size(); ++id) {
      const std::string bytes = tokenizer_->DecodeBytes(id);
      if (tokenizer_->IsSpecial(id) || bytes.empty()) continue;
      if (follow(here, bytes) != Matcher::kDead) ids.push_back(id);
    }
    if (matcher.MayEnd(here)) ids.push_back(stop_);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  // The longest, or the shortest, token that `text` goes on with after `done`.
  int32_t NextToken(const std::string& text, const std::string& done, bool longest) const {
    int32_t best = -1;
    size_t best_size = 0;
    for (int32_t id = 0; id < tokenizer_->size(); ++id) {
      const std::string bytes = tokenizer_->DecodeBytes(id);
      if (tokenizer_->IsSpecial(id) || bytes.empty() || text.compare(done.size(), bytes.size(), bytes) != 0) continue;
      if (best >= 0 && longest != (bytes.size() > best_size)) continue;
      best = id;
      best_size = bytes.size();
    }
    return best;
  }

  static std::vector<int32_t> Ids(const TokenMask& mask, int32_t count) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < count; ++id) {
      if (mask.Allows(id)) ids.push_back(id);
    }
    return ids;
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const TokenTrie> trie_;
  int32_t stop_;
};

// Along a text, cut into the tokens that the tokenizer makes of it, and into its shortest tokens.
TEST_P(TokenConstraintTest, MasksAreThoseOfEveryToken) {
  const std::vector<std::pair<std::shared_ptr<VocabularyGrammar>, std::string>> cases = {
      {Compile(Kind::kJsonObject, ""), R"({"name": "Zoë \n 中文 😀 x", "n": [1, -2.5e3, {}], "b": true})"},
      {Compile(Kind::kJsonSchema, R"({"properties":{"a":{"type":"string","maxLength":4},"b":{"enum":["x","xy",12]}}})"),
       R"({"a": "héé", "b": "xy"})"},
      {Compile(Kind::kGrammar, "root ::= [^a]* \"中文\" x\nx ::= \"a\" x | \"b\""), "😀 the 中文aaab"},
      {Compile(Kind::kRegex, ".*"), "anything at all, 中文"},
  };
  for (const auto& [grammar, text] : cases) {
    for (const bool whole_tokens : {true, false}) {
      TokenConstraint constraint(grammar, std::vector<int32_t>{stop_});
      std::string done;
      while (true) {
        const absl::StatusOr<const TokenMask*> mask = constraint.Mask();
        ASSERT_TRUE(mask.ok()) << mask.status();
        const bool at_start = done.empty() && trie_->stripped_spaces() > 0;
        if (!at_start) {
          EXPECT_EQ(Ids(**mask, tokenizer_->size() + kPadding), Expected(*grammar, done)) << text << " after " << done;
        }
        if (done == text) break;
        const int32_t next = NextToken(text, done, whole_tokens);
        ASSERT_TRUE((*mask)->Allows(next)) << text << " after " << done;
        ASSERT_TRUE(constraint.Advance(next).ok());
        done += tokenizer_->DecodeBytes(next);
      }
      EXPECT_TRUE(constraint.MayEnd());
    }
  }
}

TEST_P(TokenConstraintTest, StopEndsOnlyAWholeText) {
  const auto grammar = Compile(Kind::kGrammar, "root ::= \"ab\" \"c\"?");
  TokenConstraint constraint(grammar, std::vector<int32_t>{stop_});
  EXPECT_FALSE(constraint.Mask().value()->Allows(stop_));
  EXPECT_FALSE(constraint.Advance(stop_).ok());
  EXPECT_FALSE(constraint.Advance(*ByteToken(*tokenizer_, 'b')).ok());
  EXPECT_FALSE(constraint.Advance(tokenizer_->size() + kPadding + 5).ok());
  EXPECT_FALSE(constraint.Advance(-1).ok());
  ASSERT_TRUE(constraint.Advance(*ByteToken(*tokenizer_, 'a')).ok()) << "a refused token changes nothing";
  ASSERT_TRUE(constraint.Advance(*ByteToken(*tokenizer_, 'b')).ok());
  EXPECT_TRUE(constraint.Mask().value()->Allows(stop_));
  ASSERT_TRUE(constraint.Advance(*ByteToken(*tokenizer_, 'c')).ok());
  EXPECT_EQ(constraint.Mask().value()->count(), 1) << "only the stop id is left";
  ASSERT_TRUE(constraint.Advance(stop_).ok());
  EXPECT_TRUE(constraint.finished());
  EXPECT_EQ(constraint.Mask().value()->count(), 0);
  // Without a stop id nothing is left.
  TokenConstraint endless(grammar, {});
  for (const char c : {'a', 'b', 'c'}) ASSERT_TRUE(endless.Advance(*ByteToken(*tokenizer_, c)).ok());
  EXPECT_TRUE(endless.Mask().value()->empty());
  EXPECT_TRUE(endless.MayEnd());
}

// The first masks, of a tokenizer that drops a space from the start of a text, are about the text that is left.
TEST_P(TokenConstraintTest, TheTextIsWhatTheClientSees) {
  const auto grammar = Compile(Kind::kGrammar, "root ::= (\"ab\" | \" c\") [ a-z]*");
  TokenConstraint constraint(grammar, std::vector<int32_t>{stop_});
  const TokenMask mask = *constraint.Mask().value();
  for (int32_t id = 0; id < tokenizer_->size(); ++id) {
    if (tokenizer_->IsSpecial(id) || tokenizer_->DecodeBytes(id).empty()) continue;
    IncrementalDetokenizer detokenizer(*tokenizer_, /*skip_special=*/true);
    const std::string text = detokenizer.Push(id);
    const bool is_complete = FindInvalidUtf8(tokenizer_->DecodeBytes(id)) == std::nullopt;
    if (is_complete) {
      EXPECT_EQ(mask.Allows(id), FitOf(grammar->automaton, text) != Fit::kNone) << id << " " << text;
    }
    TokenConstraint fresh(grammar, {});
    EXPECT_EQ(fresh.Advance(id).ok(), mask.Allows(id)) << id;
  }
}

TEST_P(TokenConstraintTest, SpecialTokensStandWhereTheyAreNamed) {
  const std::string special = tokenizer_->DecodeBytes(stop_);
  const auto grammar =
      Compile(Kind::kGrammar, "root ::= \"a\" %token \"" + special + "\" %until \"" + special + "\" .*");
  TokenConstraint constraint(grammar, {});
  const int32_t letter = *ByteToken(*tokenizer_, 'a');
  const auto allows_special = [&] { return constraint.Mask().value()->Allows(stop_); };
  EXPECT_FALSE(allows_special());
  ASSERT_TRUE(constraint.Advance(letter).ok());
  EXPECT_TRUE(allows_special());
  EXPECT_FALSE(constraint.Advance(ByteToken(*tokenizer_, '\xff').value_or(-1)).ok()) << "no beginning of one";
  ASSERT_TRUE(constraint.Advance(stop_).ok());
  ASSERT_TRUE(constraint.Advance(letter).ok());
  EXPECT_TRUE(allows_special()) << "ends a text of any length";
  ASSERT_TRUE(constraint.Advance(stop_).ok());
  EXPECT_TRUE(constraint.MayEnd());
  EXPECT_FALSE(allows_special()) << "any character is no special token";
  EXPECT_FALSE(constraint.Advance(stop_).ok());
}

// Resumption elsewhere: the same masks after the same tokens.
TEST_P(TokenConstraintTest, IsAFunctionOfTheTokens) {
  const auto grammar = Compile(Kind::kJsonObject, "");
  TokenConstraint one(grammar, std::vector<int32_t>{stop_});
  std::vector<int32_t> tokens;
  const std::string text = R"({"a": ["é", 1]})";
  for (std::string done; done != text; done += tokenizer_->DecodeBytes(tokens.back())) {
    tokens.push_back(NextToken(text, done, /*longest=*/true));
    ASSERT_TRUE(one.Advance(tokens.back()).ok());
    TokenConstraint other(Compile(Kind::kJsonObject, ""), std::vector<int32_t>{stop_});
    for (const int32_t token : tokens) ASSERT_TRUE(other.Advance(token).ok());
    EXPECT_EQ(*one.Mask().value(), *other.Mask().value());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenConstraintTest, testing::Values("qwen", "kimi_k2", "llama"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(TokenTrieTest, HasEveryTokenOnce) {
  for (const char* kind : {"qwen", "kimi_k2", "llama", "gpt_oss"}) {
    const auto tokenizer = PublishedTokenizer(kind);
    const TokenTrie trie(*tokenizer, tokenizer->size());
    std::vector<int> seen(tokenizer->size(), 0);
    std::string path;
    for (uint32_t node = 1; node < trie.size(); ++node) {
      path.resize(trie.nodes()[node].depth - 1);
      path += static_cast<char>(trie.nodes()[node].byte);
      for (const int32_t id : trie.tokens(node)) {
        const std::string bytes = tokenizer->DecodeBytes(id);
        EXPECT_EQ(tokenizer->IsSpecial(id) ? SpecialTokenBytes(bytes) : bytes, path);
        EXPECT_EQ(trie.bytes(id), path);
        ++seen[id];
      }
    }
    for (int32_t id = 0; id < tokenizer->size(); ++id) {
      const std::string bytes = tokenizer->DecodeBytes(id);
      const bool is_no_text = !tokenizer->IsSpecial(id) && bytes.find('\xff') != std::string::npos;
      EXPECT_EQ(seen[id], !bytes.empty() && !is_no_text) << kind << " " << id;
    }
  }
}

}  // namespace
}  // namespace moestro::text::grammar
