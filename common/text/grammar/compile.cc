#include "common/text/grammar/compile.h"

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/gbnf.h"
#include "common/text/grammar/json_schema.h"
#include "common/text/grammar/lark.h"
#include "common/text/grammar/limits.h"
#include "common/text/grammar/pattern.h"

namespace moestro::text::grammar {
namespace {

absl::StatusOr<Grammar> Parse(const Constraint& constraint, CompileBudget& budget) {
  switch (constraint.kind) {
    case Constraint::Kind::kNone:
      break;
    case Constraint::Kind::kJsonObject:
      return AnyJsonObject();
    case Constraint::Kind::kJsonSchema:
      return CompileJsonSchema(constraint.text, budget);
    case Constraint::Kind::kGrammar:
      if (IsLark(constraint.text)) {
        MOE_ASSIGN_OR_RETURN(const std::string gbnf, LarkToGbnf(constraint.text));
        return ParseGbnf(gbnf, budget);
      }
      return ParseGbnf(constraint.text, budget);
    case Constraint::Kind::kRegex:
      return ParseRegex(constraint.text);
  }
  return absl::InternalError("a constraint without a kind");
}

}  // namespace

absl::StatusOr<Automaton> CompileConstraint(const Constraint& constraint, CompileBudget& budget) {
  if (constraint.text.size() > kMaxConstraintBytes) {
    return absl::InvalidArgumentError(Concat("longer than ", kMaxConstraintBytes, " bytes"));
  }
  MOE_ASSIGN_OR_RETURN(const Grammar grammar, Parse(constraint, budget));
  return Automaton::Compile(grammar, budget);
}

}  // namespace moestro::text::grammar
