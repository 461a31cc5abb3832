#include <functional>
#include <string>
#include <vector>

#include "common/text/normalizer.h"
#include "common/text/tokenizer.h"
#include "common/text/tokenizer_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace moestro::text {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Valid() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": ["a b", ["ab", "ab"]]}
  })");
}

json TextDecoder() {
  return json::parse(R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
}

// The same over text, with tokens for all bytes: 10 and up.
json ValidText() {
  json file = Valid();
  file["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = TextDecoder();
  file["model"]["byte_fallback"] = true;
  file["model"]["fuse_unk"] = true;
  for (int byte = 0; byte < 256; ++byte) {
    file["model"]["vocab"][ByteTokenSpelling(static_cast<unsigned char>(byte))] = 10 + byte;
  }
  file["model"]["vocab"]["▁"] = 5;
  file["model"]["vocab"]["▁a"] = 6;
  file["model"]["vocab"]["▁▁"] = 7;
  file["model"]["merges"] = {"▁ a", "a b", "▁ ▁"};
  return file;
}

using Change = std::function<void(json&)>;

absl::Status Load(const Change& change) {
  json file = Valid();
  change(file);
  return Tokenizer::Create({.tokenizer_json = file.dump()}).status();
}

TEST(TokenizerJsonTest, TheBaseOfTheseTestsIsValid) {
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = Valid().dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("ababab<s>", {}).value(), testing::ElementsAre(4, 3, 2, 4));
}

TEST(TokenizerJsonTest, LeavesOutWhatIsOptional) {
  const auto status = Load([](json& file) {
    file.erase("normalizer");
    file.erase("post_processor");
    file.erase("added_tokens");
    for (const char* key : {"type", "dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"}) {
      file["model"].erase(key);
    }
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteLevel"}}}}};
  });
  EXPECT_TRUE(status.ok()) << status;
}

struct RefusedCase {
  Change change;
  std::string names;  // what the message must name
};

TEST(TokenizerJsonTest, RefusesMalformedFiles) {
  for (
      const auto& [change, names] : std::vector<RefusedCase>{
          {[](json& f) { f = json::array(); }, "JSON"},
          {[](json& f) { f.erase("model"); }, "'model'"},
          {[](json& f) { f["model"] = 3; }, "'model'"},
          {[](json& f) { f["model"].erase("vocab"); }, "'vocab'"},
          {[](json& f) {
             f["model"]["vocab"] = {"a", "b"};
           },
           "'vocab'"},
          {[](json& f) { f["model"]["vocab"]["a"] = "zero"; }, "model.vocab['a']"},
          {[](json& f) { f["model"]["vocab"]["a"] = -1; }, "model.vocab['a']"},
          {[](json& f) { f["model"]["vocab"]["a"] = 1.5; }, "model.vocab['a']"},
          {[](json& f) { f["model"]["vocab"]["a"] = 1 << 24; }, "model.vocab['a']"},
          {[](json& f) { f["model"]["vocab"]["a"] = 1; }, "token id 1"},
          {[](json& f) { f["model"].erase("merges"); }, "'merges'"},
          {[](json& f) { f["model"]["merges"] = "a b"; }, "'merges'"},
          {[](json& f) { f["model"]["merges"][0] = "ab"; }, "model.merges[0]"},
          {[](json& f) { f["model"]["merges"][0] = "a b c"; }, "model.merges[0]"},
          {[](json& f) { f["model"]["merges"][1] = {"ab"}; }, "model.merges[1]"},
          {[](json& f) {
             f["model"]["merges"][1] = {"ab", 1};
           },
           "model.merges[1]"},
          {[](json& f) { f["model"]["merges"][0] = "a z"; }, "'z'"},
          {[](json& f) { f["model"]["merges"][0] = "b a"; }, "'ba'"},
          {[](json& f) { f["model"]["ignore_merges"] = "yes"; }, "'ignore_merges'"},
          {[](json& f) { f["model"]["type"] = 1; }, "'type'"},
          {[](json& f) { f["added_tokens"] = "none"; }, "'added_tokens'"},
          {[](json& f) { f["added_tokens"][0] = "x"; }, "added_tokens[0]"},
          {[](json& f) { f["added_tokens"][0]["id"] = 2; }, "token id 2"},
          {[](json& f) { f["added_tokens"][0]["id"] = "4"; }, "added_tokens[0]"},
          {[](json& f) { f["added_tokens"][0].erase("id"); }, "'id'"},
          {[](json& f) { f["added_tokens"][0]["content"] = ""; }, "'content'"},
          {[](json& f) { f["added_tokens"][0]["content"] = 5; }, "'content'"},
          {[](json& f) { f["added_tokens"][0]["lstrip"] = 1; }, "'lstrip'"},
          {[](json& f) { f["added_tokens"][0]["content"] = "a"; }, "two ids"},
          {[](json& f) {
             f["added_tokens"].push_back({{"id", 9}, {"content", "<s>"}});
           },
           "two ids"},
          {[](json& f) { f["pre_tokenizer"]["pretokenizers"] = 1; }, "'pretokenizers'"},
          {[](json& f) {
             f["pre_tokenizer"] = {{"kind", "ByteLevel"}};
           },
           "'type'"},
          {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "("; }, "pre_tokenizer"},
          {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = 1; }, "'Regex'"},
          {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["invert"] = "no"; }, "'invert'"},
          {[](json& f) {
             f["normalizer"] = {{"type", "Prepend"}};
           },
           "'prepend'"},
          {[](json& f) {
             f["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(65, 'x')}};
           },
           "64 bytes at most"},
          {[](json& f) {
             f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", ""}};
           },
           "normalizer Replace"},
          {[](json& f) {
             f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", std::string(17, 'x')}};
           },
           "factor of 16"},
          {[](json& f) { f["normalizer"] = json::array(); }, "'type'"},
          {[](json& f) {
             f["normalizer"] = {{"type", "Sequence"}};
           },
           "'normalizers'"},
          {[](json& f) { f["post_processor"]["special_tokens"] = json::object(); }, "special_tokens['<s>']"},
          {[](json& f) { f["post_processor"]["special_tokens"]["<s>"]["ids"][0] = 77; }, "77"},
          {[](json& f) { f["post_processor"]["special_tokens"]["<s>"]["ids"] = 4; }, "'ids'"},
          {[](json& f) { f["post_processor"]["single"].erase(1); }, "'single'"},
          {[](json& f) { f["post_processor"]["single"][0] = "x"; }, "'single'"},
      }) {
    const absl::Status status = Load(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << names << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("tokenizer.json"), HasSubstr(names)));
  }
}

TEST(TokenizerJsonTest, RefusesOtherKindsOfTokenizers) {
  for (const auto& [change, names] : std::vector<RefusedCase>{
           {[](json& f) { f["model"]["type"] = "Unigram"; }, "model.type"},
           {[](json& f) { f["model"]["byte_fallback"] = true; }, "true with a ByteLevel"},
           {[](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout"},
           {[](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix"},
           {[](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
           {[](json& f) {
              f["normalizer"] = {{"type", "Lowercase"}};
            },
            "normalizer.type': Lowercase"},
           {[](json& f) {
              f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "NFKC"}}}}};
            },
            "NFKC"},
           {[](json& f) {
              f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}};
            },
            "normalizer Replace.pattern"},
           {[](json& f) { f["pre_tokenizer"] = nullptr; }, "decoder"},
           {[](json& f) {
              f["pre_tokenizer"] = nullptr;
              f["decoder"] = TextDecoder();
            },
            "false without a ByteLevel"},
           {[](json& f) {
              f["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Metaspace"}, {"replacement", "_"}};
            },
            "Metaspace"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); }, "ByteLevel"},
           {[](json& f) { std::swap(f["pre_tokenizer"]["pretokenizers"][0], f["pre_tokenizer"]["pretokenizers"][1]); },
            "Split after ByteLevel"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext"; }, "MergedWithNext"},
           {[](json& f) {
              f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
            },
            "pattern"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }, "add_prefix_space"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\b"; }, "pre_tokenizer"},
           {[](json& f) { f["post_processor"]["type"] = "RobertaProcessing"; }, "RobertaProcessing"},
           {[](json& f) { f["post_processor"]["single"][1]["Sequence"]["id"] = "B"; }, "single"},
           {[](json& f) { f["decoder"] = nullptr; }, "decoder"},
           {[](json& f) { f["decoder"]["type"] = "Metaspace"; }, "decoder': 'Metaspace' instead"},
       }) {
    const absl::Status status = Load(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << names << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("tokenizer.json"), HasSubstr(names)));
  }
}

TEST(TokenizerJsonTest, RefusesAKeyTwice) {
  std::string file = Valid().dump();
  file.insert(file.find("\"ab\":2"), "\"ab\":3,");
  EXPECT_THAT(std::string(Tokenizer::Create({.tokenizer_json = file}).status().message()),
              HasSubstr("duplicate key 'ab'"));
}

// Every prefix of a file is malformed: it must be rejected without a crash.
TEST(TokenizerJsonTest, RefusesTruncatedFiles) {
  const std::string file = Valid().dump();
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(Tokenizer::Create({.tokenizer_json = file.substr(0, length)}).ok()) << length;
  }
}

TEST(TokenizerJsonTest, DigitsSplitOneByOneOrInRuns) {
  for (const bool individual : {true, false}) {
    json file = Valid();
    file["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Digits"}, {"individual_digits", individual}};
    file["model"]["vocab"] = {{"1", 0}, {"11", 1}};
    file["model"]["merges"] = {"1 1"};
    const auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->Encode("11", {}).value(), individual ? (std::vector{4, 0, 0}) : (std::vector{4, 1}));
  }
}

TEST(TokenizerJsonTest, NormalizesAndMatchesNormalizedTokens) {
  json file = Valid();
  file["normalizer"] = {{"type", "NFC"}};
  file["model"]["vocab"] = {{"Ã", 0}, {"©", 1}, {"Ã©", 2}};  // é
  file["model"]["merges"] = {"Ã ©"};
  file["added_tokens"].push_back({{"id", 9}, {"content", "<e\u0301>"}, {"special", false}, {"normalized", true}});
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("e\u0301é<é><e\u0301>", {}).value(), testing::ElementsAre(4, 2, 2, 9, 9));
  EXPECT_EQ((*tokenizer)->longest_token_bytes(), 5 * kMaxNfcShrink);
}

TEST(TokenizerJsonTest, SplitsMayDropTextOrKeepOnlyIt) {
  for (const bool invert : {false, true}) {
    json file = Valid();
    file["pre_tokenizer"]["pretokenizers"][0] = {
        {"type", "Split"}, {"pattern", {{"Regex", "b+"}}}, {"behavior", "Removed"}, {"invert", invert}};
    const auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->Encode("abbab", {}).value(), invert ? (std::vector{4, 1, 1, 1}) : (std::vector{4, 0, 0}));
  }
}

TEST(TokenizerJsonTest, MergesOverText) {
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = ValidText().dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // A normalizer works on each stretch between control tokens.
  EXPECT_THAT((*tokenizer)->Encode("ab  a<s>a é", {}).value(),
              testing::ElementsAre(4, 6, 1, 5, 6, 4, 6, 5, 10 + 0xC3, 10 + 0xA9));
  EXPECT_EQ((*tokenizer)->Decode(std::vector{7, 6, 10 + 0xC3, 10 + 0xA9, 10 + 0xC3, 0}, false), "  aé\uFFFDa");
  EXPECT_EQ((*tokenizer)->DecodeBytes(6), " a");
}

TEST(TokenizerJsonTest, PlainTextOverTextMakesNoControlToken) {
  json file = ValidText();
  file["model"]["vocab"]["<"] = 300;
  file["model"]["vocab"]["s>"] = 301;
  file["model"]["vocab"]["s"] = 302;
  file["model"]["vocab"][">"] = 303;
  file["model"]["vocab"]["<s>"] = 4;
  file["model"]["merges"].insert(file["model"]["merges"].end(), {"s >", "< s>"});
  const auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("<s>", {.add_special_tokens = false, .parse_special_tokens = false}).value(),
              testing::ElementsAre(5, 300, 301));
}

TEST(TokenizerJsonTest, MetaspaceMarksSpaces) {
  const auto encode = [](const json& pre_tokenizer, const std::string& text) {
    json file = ValidText();
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = pre_tokenizer;
    const auto tokenizer = Tokenizer::Create({.tokenizer_json = file.dump()});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->Encode(text, {.add_special_tokens = false}).value();
  };
  const std::string text = "a  a<s>a";
  json step = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_THAT(encode(step, text), testing::ElementsAre(6, 5, 6, 4, 0));
  EXPECT_THAT(encode(step, "a  b"), testing::ElementsAre(6, 7, 1));
  step["split"] = true;
  EXPECT_THAT(encode(step, "a  b"), testing::ElementsAre(6, 5, 5, 1));
  EXPECT_THAT(encode(step, text), testing::ElementsAre(6, 5, 6, 4, 0));
  step["prepend_scheme"] = "always";
  EXPECT_THAT(encode(step, text), testing::ElementsAre(6, 5, 6, 4, 6));
  EXPECT_THAT(encode(step, " a"), testing::ElementsAre(6));  // it has its mark already
  step["prepend_scheme"] = "never";
  EXPECT_THAT(encode(step, text), testing::ElementsAre(0, 5, 6, 4, 0));
  step.erase("prepend_scheme");
  EXPECT_THAT(encode(step, text), testing::ElementsAre(6, 5, 6, 4, 6));
  step["add_prefix_space"] = false;
  EXPECT_THAT(encode(step, text), testing::ElementsAre(0, 5, 6, 4, 0));
}

TEST(TokenizerJsonTest, RefusesMalformedFilesOverText) {
  using enum absl::StatusCode;
  struct Case {
    Change change;
    std::string names;
    absl::StatusCode code;
  };
  const auto metaspace = [](const char* key, const json& value) {
    return [=](json& f) {
      f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
      f["pre_tokenizer"][key] = value;
    };
  };
  const auto strip = [](const char* key, const json& value) {
    return [=](json& f) { f["decoder"]["decoders"][3][key] = value; };
  };
  for (const auto& [change, names, code] : std::vector<Case>{
           {[](json& f) { f["model"]["vocab"].erase("<0x41>"); }, "no token '<0x41>'", kInvalidArgument},
           {[](json& f) { f["model"]["vocab"].erase("<0xFF>"); }, "no token '<0xFF>'", kInvalidArgument},
           {[](json& f) { f["model"]["byte_fallback"] = 1; }, "'byte_fallback'", kInvalidArgument},
           {[](json& f) { f["model"]["byte_fallback"] = false; }, "model.byte_fallback", kUnimplemented},
           {[](json& f) { f["model"]["fuse_unk"] = "yes"; }, "'fuse_unk'", kInvalidArgument},
           {[](json& f) { f["model"]["unk_token"] = 0; }, "'unk_token'", kInvalidArgument},
           {[](json& f) {
              f["model"]["vocab"]["<0x41>a"] = 400;
              f["model"]["merges"].push_back("<0x41> a");
            },
            "a merge of a byte token", kUnimplemented},
           {[](json& f) { f["decoder"] = nullptr; }, "'decoder'", kUnimplemented},
           {[](json& f) { f["decoder"]["decoders"].erase(1); }, "Replace, Fuse, Strip", kUnimplemented},
           {[](json& f) {
              f["decoder"] = {{"type", "ByteLevel"}};
            },
            "'ByteLevel' instead of", kUnimplemented},
           {[](json& f) {
              f["decoder"]["decoders"][0]["pattern"] = {{"Regex", "x"}};
            },
            "Replace.pattern", kUnimplemented},
           {[](json& f) { f["decoder"]["decoders"][0]["content"] = std::string(65, ' '); }, "decoder Replace",
            kInvalidArgument},
           {strip("start", "1"), "'start'", kInvalidArgument},
           {strip("start", -1), "'start'", kInvalidArgument},
           {strip("start", 1000), "'start'", kInvalidArgument},
           {strip("stop", nullptr), "'stop' is missing", kInvalidArgument},
           {strip("stop", 1), "Strip.stop", kUnimplemented},
           {strip("content", "x"), "Strip.content", kUnimplemented},
           {strip("content", 1), "'content'", kInvalidArgument},
           {metaspace("replacement", "ab"), "'replacement'", kInvalidArgument},
           {metaspace("replacement", ""), "'replacement'", kInvalidArgument},
           {metaspace("replacement", 1), "'replacement'", kInvalidArgument},
           {metaspace("prepend_scheme", "last"), "prepend_scheme", kUnimplemented},
           {metaspace("prepend_scheme", 1), "'prepend_scheme'", kInvalidArgument},
           {metaspace("split", 1), "'split'", kInvalidArgument},
       }) {
    json file = ValidText();
    change(file);
    const absl::Status status = Tokenizer::Create({.tokenizer_json = file.dump()}).status();
    EXPECT_EQ(status.code(), code) << names << ": " << status;
    const std::string message(status.message());
    EXPECT_THAT(message, testing::AllOf(HasSubstr("tokenizer.json"), HasSubstr(names)));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace moestro::text
