// What a run over a file of questions scored, and the difference between two runs. Pure: reads no file, calls no
// server.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moestro::cli {

// Exact matches, and the perplexity of the expected answers if it was asked for; per task and in total.
class Scores {
 public:
  // What the model makes of an expected answer after its prompt: sum of the log-probabilities of its tokens.
  struct Expected {
    double sum_logprob = 0;
    int64_t tokens = 0;
  };

  void Add(const std::string& task, bool right, const Expected& expected);

  // The inverse of ToJson; ignores differences. INVALID_ARGUMENT names the field.
  static absl::StatusOr<Scores> FromJson(const nlohmann::json& json);

  // OK if both are of the same questions and tokens. INVALID_ARGUMENT says what differs.
  absl::Status CheckComparable(const Scores& earlier) const;

  // {"tasks": {name: {"right", "of", "share"}}, "right", "of", "share"}; tasks in alphabetical order. With a perplexity
  // each of these also has "tokens", "sum_logprob" and "perplexity" = exp(-sum_logprob / tokens). With `earlier`, which
  // must be comparable, each has "difference": {"right", "perplexity"}, this run's less the earlier one's.
  nlohmann::json ToJson(const Scores* earlier = nullptr) const;
  // A table to read, of the same.
  std::string ToText(const Scores* earlier = nullptr) const;

 private:
  struct Count {
    int right = 0;
    int of = 0;
    Expected expected;

    double share() const { return of == 0 ? 0 : static_cast<double>(right) / of; }
    bool has_perplexity() const { return expected.tokens > 0; }
    double perplexity() const { return std::exp(-expected.sum_logprob / static_cast<double>(expected.tokens)); }
    void operator+=(const Count& other);
  };

  Count Total() const;
  Count Of(const std::string& task) const;  // zero of an unknown one

  std::map<std::string, Count> tasks_;
};

}  // namespace moestro::cli
