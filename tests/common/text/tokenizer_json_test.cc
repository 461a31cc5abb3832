#include <functional>
#include <string>
#include <vector>

#include "common/text/tokenizer.h"
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

using Change = std::function<void(json&)>;

absl::Status Load(const Change& change) {
  json file = Valid();
  change(file);
  return Tokenizer::FromJson(file.dump()).status();
}

TEST(TokenizerJsonTest, TheBaseOfTheseTestsIsValid) {
  const auto tokenizer = Tokenizer::FromJson(Valid().dump());
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
  for (const auto& [change, names] : std::vector<RefusedCase>{
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
           {[](json& f) { f["model"]["byte_fallback"] = true; }, "model.byte_fallback"},
           {[](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout"},
           {[](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix"},
           {[](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
           {[](json& f) {
              f["normalizer"] = {{"type", "NFC"}};
            },
            "NFC"},
           {[](json& f) {
              f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}}}};
            },
            "NFKC"},
           {[](json& f) { f["pre_tokenizer"] = nullptr; }, "pre_tokenizer"},
           {[](json& f) { f["pre_tokenizer"]["type"] = "Metaspace"; }, "Metaspace"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); }, "ByteLevel"},
           {[](json& f) { std::swap(f["pre_tokenizer"]["pretokenizers"][0], f["pre_tokenizer"]["pretokenizers"][1]); },
            "Split after ByteLevel"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }, "Removed"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }, "invert"},
           {[](json& f) {
              f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
            },
            "pattern"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }, "add_prefix_space"},
           {[](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\b"; }, "pre_tokenizer"},
           {[](json& f) { f["post_processor"]["type"] = "RobertaProcessing"; }, "RobertaProcessing"},
           {[](json& f) { f["post_processor"]["single"][1]["Sequence"]["id"] = "B"; }, "single"},
           {[](json& f) { f["decoder"] = nullptr; }, "decoder"},
           {[](json& f) { f["decoder"]["type"] = "Metaspace"; }, "decoder.type"},
       }) {
    const absl::Status status = Load(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << names << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("tokenizer.json"), HasSubstr(names)));
  }
}

TEST(TokenizerJsonTest, RefusesAKeyTwice) {
  std::string file = Valid().dump();
  file.insert(file.find("\"ab\":2"), "\"ab\":3,");
  EXPECT_THAT(std::string(Tokenizer::FromJson(file).status().message()), HasSubstr("duplicate key 'ab'"));
}

// Every prefix of a file is malformed: it must be rejected without a crash.
TEST(TokenizerJsonTest, RefusesTruncatedFiles) {
  const std::string file = Valid().dump();
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(Tokenizer::FromJson(file.substr(0, length)).ok()) << length;
  }
}

TEST(TokenizerJsonTest, DigitsSplitOneByOneOrInRuns) {
  for (const bool individual : {true, false}) {
    json file = Valid();
    file["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Digits"}, {"individual_digits", individual}};
    file["model"]["vocab"] = {{"1", 0}, {"11", 1}};
    file["model"]["merges"] = {"1 1"};
    const auto tokenizer = Tokenizer::FromJson(file.dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->Encode("11", {}).value(), individual ? (std::vector{4, 0, 0}) : (std::vector{4, 1}));
  }
}

}  // namespace
}  // namespace moestro::text
