// Python's two ways to write values into a text: % and str.format().
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/jinja/limits.h"
#include "common/text/jinja/value.h"

namespace moestro::text::jinja {

// Of fields and indentations: far more than any prompt has.
inline constexpr int64_t kMaxWidth = 1000;

// "%s of %d" % arguments; "%(name)s" takes a member of the only argument, a dict. INVALID_ARGUMENT for conversions that
// are not supported, and arguments that do not fit.
absl::StatusOr<std::string> FormatPercent(const std::string& format, std::span<const Value> arguments, Budget& budget);

// "{} {0} {name} {0.member} {:>8.2f}".format(...). `named` may be null.
absl::StatusOr<std::string> FormatFields(const std::string& format, std::span<const Value> positional,
                                         const Dict* named, Budget& budget);

}  // namespace moestro::text::jinja
