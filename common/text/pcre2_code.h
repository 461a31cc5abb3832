// Compiled PCRE2 patterns without the PCRE2 header.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;

namespace moestro::text {

struct Pcre2CodeDeleter {
  void operator()(pcre2_real_code_8* code) const;
};
using Pcre2Code = std::unique_ptr<pcre2_real_code_8, Pcre2CodeDeleter>;

// Compiles a valid UTF-8 pattern with UTF, UCP, MULTILINE and newline LF, and with the JIT if PCRE2 has one.
// INVALID_ARGUMENT with PCRE2's message and the offset if it does not compile.
absl::StatusOr<Pcre2Code> CompilePcre2(const std::string& pattern);

// PCRE2's message for one of its error numbers.
std::string Pcre2Message(int error);

}  // namespace moestro::text
