#include "common/text/grammar/schema_strings.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/common/text/grammar/schema_goldens.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;

std::string Text(size_t length) { return "\"" + std::string(length, 'x') + "\""; }

TEST(SchemaStringsTest, PatternFormatAndLengthHoldTogether) {
  ExpectGoldens({
      {R"({"pattern":"^[a-z]+$","minLength":2,"maxLength":4})",
       {R"("ab")", R"("abcd")"},
       {R"("a")", R"("abcde")", R"("aB")", R"("")"}},
      {R"({"pattern":"é|\"","maxLength":3})", {R"("xéx")", R"("\"")"}, {R"("xxéx")", R"("xx")"}},
      {R"({"format":"date","pattern":"^20\\d{2}-"})", {R"("2024-02-29")"}, {R"("1999-12-31")", R"("2023-02-29")"}},
      {R"({"format":"email","minLength":8})", {R"("ab@cd.ef")"}, {R"("a@b.co")"}},
      {R"({"format":"hostname","pattern":"^a","maxLength":3})", {R"("a.b")", R"("a")"}, {R"("b")", R"("a.bc")"}},
      {R"({"format":"uuid","pattern":"^[0-9a-f]{8}-[0-9a-f]{4}-[1-8]"})",
       {R"("01234567-89ab-1def-0123-456789abcdef")"},
       {R"("01234567-89ab-0def-0123-456789abcdef")", R"("01234567-89AB-1def-0123-456789abcdef")"}},
      // Two patterns, as allOf has them.
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}],"maxLength":3})",
       {R"("ab")", R"("bxa")"},
       {R"("a")", R"("aaab")"}},
      {R"({"allOf":[{"format":"ipv4"},{"pattern":"^10\\."}],"type":"string"})", {R"("10.0.0.1")"}, {R"("11.0.0.1")"}},
  });
  EXPECT_THAT(ErrorOf(kSchema, R"({"pattern":"^a{3}$","maxLength":2})"), HasSubstr("no text fits"));
  EXPECT_THAT(ErrorOf(kSchema, R"({"allOf":[{"pattern":"^a$"},{"pattern":"^b$"}]})"), HasSubstr("no text fits"));
}

TEST(SchemaStringsTest, AFormatIsAnAnnotation) {
  ExpectGoldens({
      {R"({"type":"string","format":"uri"})", {R"("x")", R"("")"}, {"1"}},
      {R"({"format":"binary","maxLength":2})", {R"("xy")"}, {R"("xyz")"}},
      {R"({"format":"regex","pattern":"^a+$"})", {R"("aa")"}, {R"("b")"}},
      // Nothing is a date of three characters.
      {R"({"format":"date","maxLength":3})", {R"("abc")"}, {R"("2024-02-29")"}},
      {R"({"format":"uuid","pattern":"^x$"})", {R"("x")"}, {R"("01234567-89ab-1def-0123-456789abcdef")"}},
      // What cannot be read beside a format that can be enforced.
      {R"x({"format":"email","pattern":"^(?!\\.)[a-z.]+@[a-z.]+$"})x", {R"("a.b@c.de")"}, {R"("a")"}},
  });
  EXPECT_THAT(ErrorOf(kSchema, R"x({"format":"email","pattern":"^(a"})x"), HasSubstr("'(' without ')'"));
  EXPECT_THAT(ErrorOf(kSchema, R"x({"format":"uri","pattern":"a(?=b)"})x"), HasSubstr("look-around"));
}

TEST(SchemaStringsTest, LongMaximaAreCountedInBlocks) {
  for (const size_t most : {1000, 1024, 1025, 4095, 4096, 10000, 16384, 20000}) {
    const auto automaton = MakeAutomaton(kSchema, absl::StrCat(R"({"type":"string","maxLength":)", most, "}"));
    for (const size_t fits : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, most - 64}) {
      EXPECT_TRUE(Matches(automaton, Text(fits))) << fits << " of " << most;
    }
    for (const size_t long_one : {most + 1, most + 64, 2 * most}) EXPECT_FALSE(Matches(automaton, Text(long_one)));
    EXPECT_LT(automaton->state_count(), 14000);
  }
  const auto both = MakeAutomaton(kSchema, R"({"type":"string","minLength":5000,"maxLength":5010})");
  EXPECT_TRUE(Matches(both, Text(5000)) && Matches(both, Text(5010)));
  EXPECT_FALSE(Matches(both, Text(4999)) || Matches(both, Text(5011)));
  const auto from = MakeAutomaton(kSchema, R"({"type":"string","minLength":5000})");
  EXPECT_TRUE(Matches(from, Text(5000)) && Matches(from, Text(9000)));
  EXPECT_FALSE(Matches(from, Text(4999)));
}

TEST(SchemaStringsTest, ManyLongTextsFit) {
  std::string fields;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&fields, i == 0 ? "" : ",", "\"f", i, R"(":{"type":"string","maxLength":)", 5000 + i * 97, "}");
  }
  EXPECT_EQ(ErrorOf(kSchema, "{\"properties\":{" + fields + "}}"), "compiles");
  EXPECT_EQ(ErrorOf(kSchema, R"({"type":"string","maxLength":1000000000000})"), "compiles");
  EXPECT_EQ(ErrorOf(kSchema, R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":50000})"),
            "compiles");
  EXPECT_EQ(ErrorOf(kSchema, R"({"type":"string","pattern":"^\\S+$","maxLength":100000})"), "compiles");
  const auto names = [](int count, int different) {
    std::string members;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&members, i == 0 ? "" : ",", "\"f", i,
                      R"(":{"pattern":"^[a-zA-Z0-9._ -]+$","minLength":1,"maxLength":)", 255 + i % different, "}");
    }
    return "{\"properties\":{" + members + "}}";
  };
  EXPECT_EQ(ErrorOf(kSchema, names(40, 40)), "compiles");
  EXPECT_EQ(ErrorOf(kSchema, names(150, 2)), "compiles");
}

}  // namespace
}  // namespace moestro::text::grammar
