#include "common/text/pcre2_code.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/text/concat.h"

namespace moestro::text {

void Pcre2CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pcre2Code> CompilePcre2(const std::string& pattern) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) return absl::ResourceExhaustedError("out of memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  Pcre2Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        Concat("regular expression '", pattern, "', offset ", offset, ": ", Pcre2Message(error)));
  }
  // Without a JIT (or memory for it), matching falls back to the interpreter automatically.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

std::string Pcre2Message(int error) {
  PCRE2_UCHAR message[256];
  if (pcre2_get_error_message(error, message, sizeof(message)) < 0) return Concat("PCRE2 error ", error);
  return reinterpret_cast<const char*>(message);
}

}  // namespace moestro::text
