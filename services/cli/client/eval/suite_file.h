// Files of multiple-choice questions, as MMLU and its relatives are published. Pure: reads no file.
//
// JSON lines: {"question": text, "options": [text...], "answer": letter or index from 0, "subject": text}, and in
// examples "cot_content": the worked answer. "choices" may stand for "options", and "category" for "subject"; other
// fields are ignored. CSV (RFC 4180): a first line that names the columns question, A, B, ..., answer, subject or
// category, and cot_content where there is one; empty options at the end do not count.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::cli {

inline constexpr size_t kMostOptions = 10;  // A to J, of MMLU-Pro

struct ChoiceQuestion {
  std::string subject;
  std::string question;
  std::vector<std::string> options;  // 2 to kMostOptions
  char answer = 'A';                 // one of the options' letters
  std::string reasoning = {};        // ends with the answer; empty where there is none
};

enum class SuiteFormat { kJsonLines, kCsv };

// INVALID_ARGUMENT names the line, counted from 1, and the field. Blank lines are skipped.
absl::StatusOr<std::vector<ChoiceQuestion>> ParseSuite(std::string_view text, SuiteFormat format);

}  // namespace moestro::cli
