// A fixed set of questions with one right answer each, and the count of right answers. Pure: reads no file, calls no
// server.
//
// File: one JSON object per line, {"task": name, "prompt": text or "messages": [{"role", "content"}...], "answer":
// text}.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
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

// Exact matches per task and in total.
class Scores {
 public:
  void Add(const std::string& task, bool right);
  // {"tasks": {name: {"right", "of", "share"}}, "right", "of", "share"}; tasks in alphabetical order.
  nlohmann::json ToJson() const;
  // A table to read.
  std::string ToText() const;

 private:
  struct Count {
    int right = 0;
    int of = 0;
    double share() const { return of == 0 ? 0 : static_cast<double>(right) / of; }
  };
  Count Total() const;
  std::map<std::string, Count> tasks_;
};

}  // namespace moestro::cli
