// What compiling a constraint costs, by allocations of memory, which do not depend on the machine: schemas of up to 256
// KiB in which something multiplies, and 10,000 random ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/text/grammar/limits.h"
#include "tests/common/text/grammar/grammar_fixture.h"
#include "tests/support/thread_allocations.h"

namespace moestro::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Of each step of the budget an allocation or two, beside those of reading the text.
int64_t MostAllocations(size_t bytes) { return 2 * kMaxCompileSteps + 16 * static_cast<int64_t>(bytes); }

void ExpectCheap(const std::string& text) {
  ASSERT_LE(text.size(), kMaxConstraintBytes);
  const int64_t before = ThreadAllocations();
  const absl::Status status = CompileAlone({Constraint::Kind::kJsonSchema, text}).status();
  EXPECT_LE(ThreadAllocations() - before, MostAllocations(text.size())) << text.substr(0, 200);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
}

Json Repeated(const Json& value, int times) { return Json(static_cast<size_t>(times), value); }
Json Numbers(int first, int count, int step) {
  Json numbers = Json::array();
  for (int i = 0; i < count; ++i) numbers.push_back(first + step * i);
  return numbers;
}
Json Named(int count, const Json& value) {
  Json object = Json::object();
  auto& members = static_cast<Json::object_t::Container&>(object.get_ref<Json::object_t&>());
  for (int i = 0; i < count; ++i) members.emplace_back(absl::StrCat("n", absl::Hex(i)), value);
  return object;
}

Json Patterns(int count) {
  Json parts = Json::array();
  for (int i = 0; i < count; ++i) parts.push_back({{"pattern", absl::StrCat("x", i)}});
  return parts;
}

TEST(CompileCost, WhatMultipliesIsCountedBeforeItIsMade) {
  const Json b = {{"$ref", "#/$defs/b"}, {"type", "integer"}};
  const Json c = {{"$ref", "#/$defs/c"}, {"type", "integer"}};
  const std::string dollars(30000, '$');
  std::string escaped;
  for (size_t i = 0; i < dollars.size(); ++i) escaped += "%24";
  const Json two = {{{"$ref", "#/$defs/a"}}, {{"$ref", "#/$defs/b"}}};
  const std::pair<const char*, Json> schemas[] = {
      {"values x references", {{"$defs", {{"b", {{"enum", Repeated(7, 65000)}}}}}, {"anyOf", Repeated(b, 300)}}},
      {"a text x references",
       {{"$defs", {{"b", {{"const", std::string(100000, 'x')}}}}},
        {"anyOf", Repeated({{"$ref", "#/$defs/b"}, {"type", "string"}}, 3000)}}},
      {"a long reference x references",
       {{"$defs", {{dollars, {{"const", 1}}}, {"b", {{"$ref", "#/$defs/" + escaped}, {"type", "integer"}}}}},
        {"anyOf", Repeated({{"$ref", "#/$defs/b"}, {"nullable", true}}, 300)}}},
      {"values x values x references",
       {{"$defs",
         {{"a", {{"enum", Numbers(0, 9000, 1)}}}, {"b", {{"enum", Numbers(0, 9000, -1)}}}, {"c", {{"allOf", two}}}}},
        {"anyOf", Repeated(c, 20)}}},
      {"names x names", {{"allOf", {{{"required", Named(4000, 1)}}, {{"required", Numbers(0, 9000, 1)}}}}}},
      {"properties x references",
       {{"$defs", {{"b", {{"properties", Named(4000, {{"type", "string"}})}}}}},
        {"anyOf", Repeated({{"$ref", "#/$defs/b"}, {"required", {"n1"}}}, 3000)}}},
      {"a name x properties",
       {{"properties", {{std::string(100000, 'k'), {{"properties", Named(4000, {{"type", "string"}})}}}}}}},
      {"items of items", {{"allOf", Repeated({{"items", {{"minimum", 1}}}}, 8000)}}},
      {"parts x annotations", {{"allOf", Repeated(Named(500, 0), 40)}}},
      {"expressions x expressions",
       {{"allOf", {{{"pattern", "^(a|b|[cd]){0,400}x.{0,400}$"}}, {{"pattern", "^.{0,700}y.{0,300}$"}}}},
        {"type", "string"}}},
      {"expressions x formats x lengths",
       {{"properties", Named(3000, {{"format", "date-time"}, {"pattern", "^20"}, {"maxLength", 30}})}}},
      {"patterns x patterns", {{"type", "string"}, {"allOf", Patterns(4000)}}},
      {"divisors", {{"properties", Named(4000, {{"type", "integer"}, {"multipleOf", 251}})}}},
      {"large divisors",
       {{"properties", Named(4000, {{"type", "number"}, {"multipleOf", 40.99}, {"minimum", -0.25}})}}},
      {"long texts", {{"properties", Named(4000, {{"type", "string"}, {"minLength", 9999}, {"maxLength", 99999}})}}},
      {"long lists", {{"properties", Named(3000, {{"items", {{"type", "integer"}}}, {"maxItems", 99999}})}}},
      {"fractions", {{"properties", Named(3000, {{"minimum", 0.123456789}, {"maximum", 1000.987654321}})}}},
  };
  for (const auto& [what, schema] : schemas) {
    SCOPED_TRACE(what);
    ExpectCheap(schema.dump());
  }
}

TEST(CompileCost, AnObjectOfManyMembersIsRefused) {
  for (const int more : {0, 1}) {
    const Json schema = {{"anyOf", Json::array({Json::object()})}, {"$defs", Named(4096 + more, true)}};
    const absl::Status status = CompileAlone({Constraint::Kind::kJsonSchema, schema.dump()}).status();
    EXPECT_EQ(status.ok(), more == 0) << status;
  }
}

class Multiplier {
 public:
  explicit Multiplier(uint64_t seed) : random_(seed) {}

  std::string Make() {
    Json root = Part(4);
    root["$defs"] = Json::object();
    for (int i = 0; i < kDefinitions; ++i) root["$defs"][std::to_string(i)] = Part(3);
    return root.dump();
  }

 private:
  static constexpr int kDefinitions = 6;
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  // Often one, seldom hundreds; what is repeated stays below some 16 KiB.
  int Times(const Json& part = nullptr) {
    return std::max(1, std::min(1 + Pick(1 << Pick(9)), static_cast<int>((16 << 10) / part.dump().size())));
  }

  Json Several(const Json& part) { return Repeated(part, Times(part)); }
  Json NamedPart(const Json& part) { return Named(Times(part), part); }

  Json Part(int depth) {
    Json part = Json::object();
    const int keywords = 1 + Pick(2);
    for (int i = 0; i < keywords; ++i) {
      switch (Pick(depth > 0 ? 12 : 5)) {
        case 0:
          part["enum"] = Numbers(Pick(3), Times(), 1);
          break;
        case 1:
          part["required"] = Json::array({"n1", std::string(static_cast<size_t>(Times()), 'r')});
          break;
        case 2:
          part["type"] = Pick(2) == 0 ? "integer" : "object";
          break;
        case 3:
          part["maxLength"] = Times();
          break;
        case 4:
          part["x-" + std::to_string(Pick(9))] = Repeated("x", Times());
          break;
        case 5:
        case 6:
        case 7:
          part["$ref"] = "#/$defs/" + std::to_string(Pick(kDefinitions));
          break;
        case 8:
          part["anyOf"] = Several(Part(depth - 1));
          break;
        case 9:
          part["allOf"] = Several(Part(depth - 1));
          break;
        case 10:
          part["items"] = Part(depth - 1);
          break;
        default:
          part["properties"] = NamedPart(Part(depth - 1));
      }
    }
    return part;
  }

  std::mt19937_64 random_;
};

TEST(CompileCost, OfRandomSchemas) {
  int whole = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const std::string text = Multiplier(seed).Make();
    if (text.size() > kMaxConstraintBytes) continue;
    ExpectCheap(text);
    ++whole;
    if (HasFailure()) break;
  }
  EXPECT_GT(whole, 9000);
}

}  // namespace
}  // namespace moestro::text::grammar
