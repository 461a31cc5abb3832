// Schemas, and texts that they accept and that they do not.
#pragma once

#include <string>
#include <vector>

#include "tests/common/text/grammar/grammar_fixture.h"

namespace moestro::text::grammar {

inline constexpr Constraint::Kind kSchema = Constraint::Kind::kJsonSchema;

struct SchemaGolden {
  const char* schema;
  std::vector<std::string> matches;
  std::vector<std::string> others;
};

inline void ExpectGoldens(const std::vector<SchemaGolden>& goldens) {
  for (const SchemaGolden& golden : goldens) {
    const auto automaton = MakeAutomaton(kSchema, golden.schema);
    for (const std::string& text : golden.matches)
      EXPECT_TRUE(Matches(automaton, text)) << golden.schema << "\n" << text;
    for (const std::string& text : golden.others)
      EXPECT_FALSE(Matches(automaton, text)) << golden.schema << "\n" << text;
  }
}

}  // namespace moestro::text::grammar
