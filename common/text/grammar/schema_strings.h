// Strings of a schema: what pattern, format, minLength and maxLength say together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/budget.h"
#include "common/text/grammar/json_text.h"
#include "common/text/grammar/schema_merge.h"

namespace moestro::text::grammar {

// From `min` to `max`; Grammar::kUnbounded: no end.
struct Counts {
  uint32_t min = 0;
  uint32_t max = Grammar::kUnbounded;
  auto operator<=>(const Counts&) const = default;
};
// What two keywords such as minLength and maxLength say. A maximum that no answer reaches is as good as any other, so
// it may become a smaller one.
absl::StatusOr<Counts> CountsOf(const Schema& schema, const char* least, const char* most, const std::string& where);

// Of one schema. `json` and `budget` must outlive this.
class SchemaStrings {
 public:
  SchemaStrings(JsonText& json, CompileBudget& budget) : json_(json), budget_(budget) {}

  // INVALID_ARGUMENT for a pattern that cannot be read, and where no text fits. A format is an annotation in JSON
  // Schema: one that is not known, or that nothing beside it fits, binds nothing.
  absl::StatusOr<NodeId> Compile(const Schema& schema, const std::string& where);

 private:
  struct Expression {
    std::string text;
    bool anywhere;  // of a pattern
    auto operator<=>(const Expression&) const = default;
  };
  struct Wanted {
    std::vector<Expression> expressions;
    Counts length;
    bool HasLength() const { return length.min > 0 || length.max != Grammar::kUnbounded; }
    auto operator<=>(const Wanted&) const = default;
  };

  static absl::StatusOr<NodeId> Parse(const Expression& expression, Grammar* grammar);
  absl::StatusOr<Automaton> CompileExpression(const Expression& expression);
  absl::StatusOr<Grammar> Intersection(const Wanted& wanted);
  absl::StatusOr<NodeId> Content(const Wanted& wanted);

  // Characters that are counted beside expressions, times their states: the first strings of a schema have many.
  static constexpr int64_t kMostCounted = 16 * 1024;
  static constexpr int64_t kLeastCounted = 1024;

  JsonText& json_;
  CompileBudget& budget_;
  std::map<Wanted, NodeId> intersections_;
  int64_t counted_left_ = kMostCounted;
};

}  // namespace moestro::text::grammar
