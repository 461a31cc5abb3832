// Texts against compiled constraints, for the tests of this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/text/grammar/compile.h"
#include "common/text/grammar/matcher.h"
#include "gtest/gtest.h"

namespace moestro::text::grammar {

inline absl::StatusOr<Automaton> CompileAlone(const Constraint& constraint) {
  CompileBudget budget;
  return CompileConstraint(constraint, budget);
}

// Fails the test if it does not compile.
inline std::shared_ptr<const Automaton> MakeAutomaton(Constraint::Kind kind, const std::string& text) {
  absl::StatusOr<Automaton> automaton = CompileAlone({kind, text});
  EXPECT_TRUE(automaton.ok()) << automaton.status() << "\n" << text;
  return automaton.ok() ? std::make_shared<const Automaton>(*std::move(automaton)) : nullptr;
}

inline std::string ErrorOf(Constraint::Kind kind, const std::string& text) {
  const absl::StatusOr<Automaton> automaton = CompileAlone({kind, text});
  return automaton.ok() ? "compiles" : std::string(automaton.status().message());
}

enum class Fit { kNone, kBegins, kWhole };

// Whether `text` is a whole text of the grammar, or only begins one.
inline Fit FitOf(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  Matcher matcher(automaton);
  Matcher::Configuration at = matcher.start();
  for (const char c : text) at = matcher.Next(at, static_cast<uint8_t>(c));
  EXPECT_TRUE(matcher.status().ok()) << matcher.status();
  if (at == Matcher::kDead) return Fit::kNone;
  return matcher.MayEnd(at) ? Fit::kWhole : Fit::kBegins;
}

inline bool Matches(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  return automaton != nullptr && FitOf(automaton, text) == Fit::kWhole;
}

}  // namespace moestro::text::grammar
