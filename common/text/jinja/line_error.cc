#include "common/text/jinja/line_error.h"

#include <string_view>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/limits.h"

namespace moestro::text::jinja {

absl::Status AtLine(const absl::Status& status, int line) {
  const std::string_view message(status.message().data(), status.message().size());
  if (status.ok() || message.starts_with("template line ")) return status;
  return Annotate(status, Concat("template line ", line));
}

absl::Status TooDeep(int line) {
  return AtLine(absl::ResourceExhaustedError(Concat("evaluation is nested over ", kMaxEvaluationDepth)), line);
}

}  // namespace moestro::text::jinja
