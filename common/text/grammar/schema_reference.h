// What a reference of a JSON schema names.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/text/grammar/schema_merge.h"

namespace moestro::text::grammar {

// Of "#" or "#/a/b", a JSON pointer in which %24 and %20 may stand for $ and a space. Takes a time that grows with its
// length. INVALID_ARGUMENT: it leads elsewhere, or to nothing. The result lives as long as `root`.
absl::StatusOr<const Schema*> FindTarget(const Schema& root, const std::string& text, const std::string& where);

}  // namespace moestro::text::grammar
