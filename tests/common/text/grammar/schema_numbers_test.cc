#include "common/text/grammar/schema_numbers.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "tests/common/text/grammar/schema_goldens.h"

namespace moestro::text::grammar {
namespace {

using testing::HasSubstr;

// Thousandths as a number: "-0.05".
std::string Thousandths(int value) {
  std::string text = absl::StrFormat("%s%d.%03d", value < 0 ? "-" : "", std::abs(value) / 1000, std::abs(value) % 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

TEST(SchemaNumbersTest, FractionsAreBound) {
  std::mt19937 random(3);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int round = 0; round < 150; ++round) {
    const int low = draw(-3000, 3000), high = low + draw(0, round % 3 == 0 ? 40 : 3000);
    const bool above = draw(0, 1) == 1, below = draw(0, 1) == 1;
    if (low == high && (above || below)) continue;
    const std::string schema =
        absl::StrCat(R"({"type":"number",")", above ? "exclusiveMinimum" : "minimum", "\":", Thousandths(low), ",\"",
                     below ? "exclusiveMaximum" : "maximum", "\":", Thousandths(high), "}");
    const auto automaton = MakeAutomaton(kSchema, schema);
    for (int i = 0; i < 400; ++i) {
      const int value = i < 8 ? (i % 2 == 0 ? low : high) + i / 2 - 2 : draw(low - 100, high + 100);
      const bool fits = (above ? value > low : value >= low) && (below ? value < high : value <= high);
      EXPECT_EQ(Matches(automaton, Thousandths(value)), fits) << value << " in " << schema;
      const std::string zeros = value % 1000 == 0 ? ".00" : "00";
      EXPECT_EQ(Matches(automaton, Thousandths(value) + zeros), fits) << value << " in " << schema;
    }
  }
}

TEST(SchemaNumbersTest, BoundsBeyondAllNumbersBindNothing) {
  for (const char* type : {"integer", "number"}) {
    const auto bounds = [&](const char* more) {
      return MakeAutomaton(kSchema, absl::StrCat("{\"type\":\"", type, "\",", more, "}"));
    };
    const auto u64 = bounds(R"("minimum":0,"maximum":18446744073709551615)");
    EXPECT_TRUE(Matches(u64, "0") && Matches(u64, "9999999999999999") && !Matches(u64, "-1"));
    const auto i64 = bounds(R"("minimum":-9223372036854775808,"maximum":9223372036854775807)");
    EXPECT_TRUE(Matches(i64, "-9999999999999999") && Matches(i64, "7"));
    const auto doubles = bounds(R"("minimum":-1.7976931348623157e308,"exclusiveMaximum":1e300)");
    EXPECT_TRUE(Matches(doubles, "-5") && Matches(doubles, "5"));
    const auto large = bounds(R"("minimum":1000000000000000000,"maximum":9223372036854775807)");
    EXPECT_TRUE(Matches(large, "1700000000000000000") && !Matches(large, "170000000000000000"));
    const auto least = bounds(R"("exclusiveMinimum":1e-300)");
    EXPECT_TRUE(Matches(least, "1") && !Matches(least, "0") && !Matches(least, "-1"));
  }
  EXPECT_THAT(ErrorOf(kSchema, R"({"type":"integer","minimum":1e300})"), HasSubstr("leaves no number"));
  EXPECT_THAT(ErrorOf(kSchema, R"({"type":"number","maximum":-1e40})"), HasSubstr("leaves no number"));
}

TEST(SchemaNumbersTest, BoundsOfDraft4) {
  const auto above = MakeAutomaton(kSchema, R"({"type":"integer","minimum":3,"exclusiveMinimum":true})");
  EXPECT_TRUE(Matches(above, "4") && !Matches(above, "3"));
  const auto from = MakeAutomaton(kSchema, R"({"type":"number","maximum":3,"exclusiveMaximum":false})");
  EXPECT_TRUE(Matches(from, "3") && !Matches(from, "3.1"));
}

TEST(SchemaNumbersTest, IntegersAreMultiples) {
  for (const int divisor : {1, 2, 3, 5, 7, 10, 60, 100, 3600}) {
    for (const auto& [low, high] : {std::pair(-5000, 7000), {0, 100000}, {-9000, -1}}) {
      const auto bound = MakeAutomaton(
          kSchema,
          absl::StrFormat(R"({"type":"integer","multipleOf":%d,"minimum":%d,"maximum":%d})", divisor, low, high));
      const auto free = MakeAutomaton(kSchema, absl::StrFormat(R"({"type":"integer","multipleOf":%d})", divisor));
      for (int value = -9010; value <= 9010; value += value % 50 == 0 ? 1 : 7) {
        const bool divides = value % divisor == 0;
        EXPECT_EQ(Matches(free, absl::StrCat(value)), divides) << value << " / " << divisor;
        EXPECT_EQ(Matches(bound, absl::StrCat(value)), divides && value >= low && value <= high)
            << value << " / " << divisor;
      }
    }
  }
  const auto half = MakeAutomaton(kSchema, R"({"type":"integer","multipleOf":2.5})");
  EXPECT_TRUE(Matches(half, "10") && Matches(half, "-5") && !Matches(half, "4"));
}

TEST(SchemaNumbersTest, FractionsAreMultiples) {
  const auto cents = MakeAutomaton(kSchema, R"({"type":"number","multipleOf":0.01,"minimum":0})");
  for (const char* fits : {"0", "10", "10.2", "10.25", "10.250", "0.01"}) EXPECT_TRUE(Matches(cents, fits)) << fits;
  for (const char* not_one : {"10.255", "-1", "0.001"}) EXPECT_FALSE(Matches(cents, not_one)) << not_one;
  const auto quarters = MakeAutomaton(kSchema, R"({"type":"number","multipleOf":0.25,"exclusiveMaximum":1.5})");
  for (const char* fits : {"-0.75", "1", "1.25", "0.5"}) EXPECT_TRUE(Matches(quarters, fits)) << fits;
  for (const char* not_one : {"0.2", "1.5", "0.3", "1.75"}) EXPECT_FALSE(Matches(quarters, not_one)) << not_one;
}

TEST(SchemaNumbersTest, OfLargeDivisorsSomeMultiplesWillDo) {
  const auto large = MakeAutomaton(kSchema, R"({"type":"integer","multipleOf":4099,"minimum":10000})");
  EXPECT_TRUE(Matches(large, "12297") && Matches(large, "16396"));
  EXPECT_FALSE(Matches(large, "8198") || Matches(large, "12298"));
  const auto negative = MakeAutomaton(kSchema, R"({"type":"number","multipleOf":12.3457,"exclusiveMaximum":-12.3457})");
  EXPECT_TRUE(Matches(negative, "-24.6914"));
  EXPECT_FALSE(Matches(negative, "-12.3457") || Matches(negative, "24.6914"));
}

TEST(SchemaNumbersTest, RefusesWhatNoNumberFits) {
  for (const auto& [schema, message] :
       {std::pair(R"({"type":"integer","minimum":3,"maximum":2})", "no number is between"),
        {R"({"type":"number","minimum":0.3,"exclusiveMaximum":0.3})", "no number is between"},
        {R"({"type":"integer","minimum":2.1,"maximum":2.9})", "no integer is between"},
        {R"({"type":"integer","multipleOf":7,"minimum":8,"maximum":13})", "no multiple of multipleOf"},
        {R"({"type":"integer","multipleOf":4099,"minimum":1,"maximum":4098})", "no multiple of multipleOf"},
        {R"({"type":"number","multipleOf":0})", "#/multipleOf: is not a number above zero"},
        {R"({"type":"number","multipleOf":1e-20})", "has too many digits"},
        {R"({"type":"number","minimum":"1"})", "#/minimum: is not a number"}}) {
    EXPECT_THAT(ErrorOf(kSchema, schema), HasSubstr(message)) << schema;
  }
}

}  // namespace
}  // namespace moestro::text::grammar
