// 500 random schemas, random choices among the allowed tokens, three kinds of tokenizer: every text parses and is what
// its schema says. The validator here knows nothing of the compiler.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "common/text/grammar/token_constraint.h"
#include "common/text/utf8.h"
#include "gtest/gtest.h"
#include "tests/common/text/grammar/grammar_fixture.h"
#include "tests/common/text/grammar/published_tokenizer.h"

namespace moestro::text::grammar {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kSchemas = 500;

class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : random_(seed) {}

  Json Make() {
    Json root = Any(3);
    root["$defs"] = {{"tree", Tree()}, {"word", String()}};
    return root;
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % count); }
  bool Chance() { return Pick(2) == 0; }

  // A list that may contain itself.
  static Json Tree() {
    return Json::parse(R"({"type":"object","properties":{"v":{"type":"integer","minimum":-9,"maximum":99},
        "next":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},"required":["v"],
        "additionalProperties":false})");
  }

  Json String() {
    switch (Pick(5)) {
      case 0:
        return {{"type", "string"}, {"minLength", Pick(3)}, {"maxLength", 2 + Pick(20)}};
      case 1: {
        const char* patterns[] = {"^[a-z]{2,5}$", "[0-9]+-[A-F]", "^(foo|ba[rz])\\.?$", "x", "^\\w+ \\d{1,2}$"};
        return {{"type", "string"}, {"pattern", patterns[Pick(5)]}};
      }
      case 2: {
        const char* formats[] = {"date", "time", "date-time", "uuid", "ipv4", "email", "hostname", "ipv6", "duration"};
        return {{"type", "string"}, {"format", formats[Pick(9)]}};
      }
      default:
        return {{"type", "string"}};
    }
  }

  Json Number() {
    Json schema = {{"type", Chance() ? "integer" : "number"}};
    const int low = Pick(2000) - 1000;
    if (Chance()) schema[Chance() ? "minimum" : "exclusiveMinimum"] = low;
    if (Chance()) schema[Chance() ? "maximum" : "exclusiveMaximum"] = low + 2 + Pick(500);
    return schema;
  }

  Json Object(int depth) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    const char* names[] = {"a", "ab", "name", "x y", "\u00e9t\u00e9", "q\"uote", "b\\", "value", "nest"};
    Json required = Json::array();
    for (int i = Pick(5); i > 0; --i) {
      const std::string name = names[Pick(9)];
      schema["properties"][name] = Any(depth - 1);
    }
    for (const auto& [name, value] : schema["properties"].items()) {
      if (Chance()) required.push_back(name);
    }
    schema["required"] = required;
    const int additional = Pick(4);
    if (additional == 0) schema["additionalProperties"] = false;
    if (additional == 1) schema["additionalProperties"] = Any(depth - 1);
    if (additional == 2) schema["title"] = "T";
    return schema;
  }

  Json Array(int depth) {
    Json schema = {{"type", "array"}, {"items", Any(depth - 1)}};
    if (Pick(4) == 0) schema["prefixItems"] = Json::array({Any(depth - 1), Any(depth - 1)});
    const int min = Pick(3);
    if (Chance()) schema["minItems"] = min;
    if (Chance()) schema["maxItems"] = std::max(min, 1) + Pick(3);
    return schema;
  }

  Json Any(int depth) {
    switch (Pick(depth > 0 ? 14 : 7)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"enum", {"red", "re", 3, nullptr, 2.5, "\u4e2d"}}};
      case 2:
      case 3:
        return Number();
      case 4:
      case 5:
        return String();
      case 6:
        return {{"type", Json::array({"null", "integer"})}, {"minimum", 0}};
      case 7:
      case 8:
        return Array(depth);
      case 9:
        return {{"anyOf", Json::array({Any(depth - 1), Any(depth - 1)})}};
      case 10:
        return {{"$ref", Chance() ? "#/$defs/tree" : "#/$defs/word"}};
      case 11:
        return {{"allOf", Json::array({Object(depth), {{"title", "beside"}}})}};
      default:
        return Object(depth);
    }
  }

  std::mt19937_64 random_;
};

// What is wrong with a value; empty: nothing.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  std::string Check(const Json& value, const Json& schema) const {
    if (schema.contains("$ref")) {
      return Check(value, root_.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))));
    }
    for (const Json& part : schema.value("allOf", Json::array())) {
      if (const std::string wrong = Check(value, part); !wrong.empty()) return wrong;
    }
    if (schema.contains("anyOf") && std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                                                 [&](const Json& part) { return Check(value, part).empty(); })) {
      return value.dump() + " is none of anyOf";
    }
    if (schema.contains("enum") && std::count(schema["enum"].begin(), schema["enum"].end(), value) == 0) {
      return value.dump() + " is not in enum";
    }
    if (schema.contains("type") && !HasType(value, schema["type"])) return value.dump() + " has another type";
    if (value.is_string()) return CheckString(value.get<std::string>(), schema);
    if (value.is_number()) return CheckNumber(value.get<double>(), schema);
    if (value.is_array()) return CheckArray(value, schema);
    if (value.is_object()) return CheckObject(value, schema);
    return "";
  }

 private:
  static bool HasType(const Json& value, const Json& type) {
    if (type.is_array()) return std::any_of(type.begin(), type.end(), [&](const Json& t) { return HasType(value, t); });
    if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
    if (type == "number") return value.is_number();
    return type == std::string(value.type_name());
  }

  static std::string CheckString(const std::string& text, const Json& schema) {
    size_t length = 0;
    for (const char c : text) length += (c & 0xC0) != 0x80;
    if (length < schema.value("minLength", 0u) || length > schema.value("maxLength", 1000000u))
      return "length of " + text;
    if (FindInvalidUtf8(text).has_value()) return "UTF-8 of " + text;
    if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return text + " does not match the pattern";
    }
    if (!schema.contains("format")) return "";
    const std::map<std::string, const char*> formats = {{"date", "\\d{4}-\\d\\d-\\d\\d"},
                                                        {"time", "\\d\\d:\\d\\d:\\d\\d.*"},
                                                        {"date-time", "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d.*"},
                                                        {"uuid", "[0-9a-fA-F-]{36}"},
                                                        {"ipv4", "\\d+\\.\\d+\\.\\d+\\.\\d+"},
                                                        {"ipv6", "[0-9a-fA-F:.]+"},
                                                        {"email", "[^@ ]+@[^@ ]+"},
                                                        {"hostname", "[-.A-Za-z0-9]+"},
                                                        {"duration", "P.+"}};
    return std::regex_match(text, std::regex(formats.at(schema["format"]))) ? "" : text + " has not the format";
  }

  static std::string CheckNumber(double value, const Json& schema) {
    const bool low = (schema.contains("minimum") && value < schema["minimum"].get<double>()) ||
                     (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"].get<double>());
    const bool high = (schema.contains("maximum") && value > schema["maximum"].get<double>()) ||
                      (schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"].get<double>());
    return low || high ? std::to_string(value) + " is out of range" : "";
  }

  std::string CheckArray(const Json& value, const Json& schema) const {
    if (value.size() < schema.value("minItems", 0u) || value.size() > schema.value("maxItems", 1000000u))
      return "items";
    const Json prefix = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i >= prefix.size() && !schema.contains("items")) continue;
      const std::string wrong = Check(value[i], i < prefix.size() ? prefix[i] : schema["items"]);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  std::string CheckObject(const Json& value, const Json& schema) const {
    const Json properties = schema.value("properties", Json::object());
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return name.dump() + " is missing";
    }
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (const std::string wrong = Check(member, properties[name]); !wrong.empty()) return wrong;
      } else if (schema.contains("additionalProperties")) {
        const Json& other = schema["additionalProperties"];
        if (other == Json(false)) return name + " is not allowed";
        if (const std::string wrong = Check(member, other); !wrong.empty()) return wrong;
      }
    }
    return "";
  }

  const Json& root_;
};

// Takes random tokens at first, then those that lead to an end.
std::string Generate(const std::shared_ptr<VocabularyGrammar>& grammar, const Tokenizer& tokenizer, int32_t stop,
                     std::mt19937_64& random) {
  constexpr int kRandomTokens = 60;
  constexpr int kMaxTokens = 2000;
  TokenConstraint constraint(grammar, std::vector<int32_t>{stop});
  std::vector<int32_t> closing = {stop};
  for (const char c : {'"', '}', ']'}) closing.push_back(*ByteToken(tokenizer, c));
  std::vector<int32_t> filling;  // "1-Ax" contains what the patterns look for
  for (const char c : {'1', '-', 'A', 'x'}) filling.push_back(*ByteToken(tokenizer, c));
  std::vector<int32_t> ids;
  for (int i = 0; i < kMaxTokens; ++i) {
    const absl::StatusOr<const TokenMask*> mask = constraint.Mask();
    EXPECT_TRUE(mask.ok()) << mask.status();
    if (!mask.ok()) return "";
    int32_t next = -1;
    const int32_t fill = filling[i % filling.size()];
    const bool fills = i % (2 * filling.size()) < filling.size();  // and closes at the others
    if (i >= kRandomTokens && fills && (*mask)->Allows(fill)) {
      next = fill;
    } else if (i >= kRandomTokens) {
      const auto found = std::find_if(closing.begin(), closing.end(), [&](int32_t id) { return (*mask)->Allows(id); });
      if (found != closing.end()) next = *found;
    }
    if (next < 0) {
      // The greatest of random logits: each allowed token is as likely.
      const int64_t count = (*mask)->count();
      EXPECT_GT(count, 0) << tokenizer.Decode(ids, true);
      if (count == 0) return "";
      int64_t nth = static_cast<int64_t>(random() % count);
      for (next = 0; !(*mask)->Allows(next) || nth-- > 0;) ++next;
    }
    EXPECT_TRUE(constraint.Advance(next).ok());
    if (constraint.finished()) return tokenizer.Decode(ids, /*skip_special=*/true);
    ids.push_back(next);
  }
  ADD_FAILURE() << "does not end: " << tokenizer.Decode(ids, true);
  return "";
}

class RandomSchemasTest : public testing::TestWithParam<const char*> {};

TEST_P(RandomSchemasTest, EveryTextParsesAndIsValid) {
  const auto tokenizer = PublishedTokenizer(GetParam());
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer, tokenizer->size());
  const int32_t stop = SpecialToken(*tokenizer);
  for (int seed = 0; seed < kSchemas && !HasFailure(); ++seed) {
    const Json schema = RandomSchema(seed).Make();
    absl::StatusOr<Automaton> automaton = CompileAlone({Constraint::Kind::kJsonSchema, schema.dump()});
    ASSERT_TRUE(automaton.ok()) << automaton.status() << "\n" << schema.dump();
    const auto grammar = std::make_shared<VocabularyGrammar>(*std::move(automaton), trie);
    std::mt19937_64 random(seed);
    const std::string text = Generate(grammar, *tokenizer, stop, random);
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(value.is_discarded()) << text << "\n" << schema.dump();
    EXPECT_EQ(Validator(schema).Check(value, schema), "") << text << "\n" << schema.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, RandomSchemasTest, testing::Values("qwen", "kimi_k2", "llama"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace moestro::text::grammar
