#include "common/text/unicode_word.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "common/base/check.h"
#include "common/text/pcre2_code.h"

namespace moestro::text {

bool IsWord(std::string_view utf8) {
  static const pcre2_code* const word = [] {
    auto code = CompilePcre2("\\A[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]");
    MOE_CHECK(code.ok());
    return code->release();
  }();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(word, nullptr), &pcre2_match_data_free);
  MOE_CHECK(data != nullptr);
  return pcre2_match(word, reinterpret_cast<PCRE2_SPTR>(utf8.data()), utf8.size(), 0, 0, data.get(), nullptr) > 0;
}

}  // namespace moestro::text
