// Bodies of type multipart/form-data (RFC 7578): how clients upload files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::router {

struct FormPart {
  std::string name;
  std::string filename;       // empty: a field of a form
  std::string_view contents;  // in the body
};

// The parts of `body`, in their order; 16 at most. `content_type`: the header. INVALID_ARGUMENT says what is not so.
absl::StatusOr<std::vector<FormPart>> ParseForm(std::string_view content_type, std::string_view body);

}  // namespace moestro::router
