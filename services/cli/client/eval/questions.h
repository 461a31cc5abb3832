// A fixed set of questions with one right answer each. Pure: reads no file, calls no server.
//
// File: one JSON object per line, {"task": name, "prompt": text or "messages": [{"role", "content"}...], "answer":
// text}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "moestro/v1/inference.pb.h"

namespace moestro::cli {

struct Question {
  std::string task;
  v1::GenerateRequest request;  // the input only
  std::string answer;
};

// INVALID_ARGUMENT names the line, counted from 1, and the field. Blank lines are skipped.
absl::StatusOr<std::vector<Question>> ParseQuestions(std::string_view text);

}  // namespace moestro::cli
