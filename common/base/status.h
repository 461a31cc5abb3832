// The project's only error type is absl::Status. common/rpc maps it to the wire in one place.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro {

// Long work calls this between two steps: OK to continue, else the reason to stop (CANCELLED, DEADLINE_EXCEEDED,
// ABORTED). Passed as absl::FunctionRef<absl::Status()>. Only the thread that does the work may call it.

namespace internal {
inline absl::Status ToStatus(absl::Status status) { return status; }
template <typename T>
absl::Status ToStatus(const absl::StatusOr<T>& status) {
  return status.status();
}
}  // namespace internal

// Prefixes the message ("prefix: message") and keeps the code. OK stays OK.
inline absl::Status Annotate(const absl::Status& status, const std::string& prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), prefix + ": " + std::string(status.message()));
}

}  // namespace moestro

#define MOE_CONCAT_INNER(a, b) a##b
#define MOE_CONCAT(a, b) MOE_CONCAT_INNER(a, b)

#define MOE_RETURN_IF_ERROR(expression)                                                                           \
  do {                                                                                                            \
    if (absl::Status moe_status = ::moestro::internal::ToStatus(expression); !moe_status.ok()) return moe_status; \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): what is declared cannot stand in parentheses.
// MOE_ASSIGN_OR_RETURN(auto value, Compute());
#define MOE_ASSIGN_OR_RETURN(declaration, expression) \
  MOE_ASSIGN_OR_RETURN_INNER(MOE_CONCAT(moe_or_, __LINE__), declaration, expression)
#define MOE_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                       \
  if (!temporary.ok()) return temporary.status();                      \
  declaration = std::move(temporary).value()
// NOLINTEND(bugprone-macro-parentheses)
