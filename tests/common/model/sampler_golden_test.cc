// Draws against the distributions that transformers' processors give: tests/golden/README.md, section "sampling".
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/model/sampler.h"
#include "gtest/gtest.h"

namespace moestro::model {
namespace {

using nlohmann::json;

constexpr int kDraws = 40000;

struct Case {
  std::string name;
  std::vector<float> logits;
  std::vector<int32_t> tokens;
  uint64_t generated = 0;
  Sampling params;
  std::vector<double> probabilities;
};

std::vector<Case> ReadCases() {
  std::ifstream file("tests/golden/sampling/distributions.json");
  std::vector<Case> cases;
  for (const json& from : json::parse(file)) {
    const json& options = from["options"];
    Sampling params{.temperature = options.at("temperature"),
                    .top_p = options.value("top_p", 1.0f),
                    .top_k = options.value("top_k", 0),
                    .min_p = options.value("min_p", 0.0f),
                    .presence_penalty = options.value("presence_penalty", 0.0f),
                    .frequency_penalty = options.value("frequency_penalty", 0.0f),
                    .repetition_penalty = options.value("repetition_penalty", 1.0f)};
    const json biases = options.value("logit_bias", json::object());
    for (const auto& [id, bias] : biases.items()) params.logit_bias.emplace_back(std::stoi(id), bias.get<float>());
    cases.push_back({from["name"], from["logits"], from["tokens"], from["generated"], params, from["probabilities"]});
  }
  return cases;
}

std::vector<int> Draw(const Case& given) {
  std::vector<int> counts(given.logits.size());
  Sampling params = given.params;
  for (int i = 0; i < kDraws; ++i) {
    params.seed = static_cast<uint64_t>(i);
    const auto token = SampleNext(given.logits, given.tokens, params, given.generated);
    if (!token.ok()) ADD_FAILURE() << token.status();
    if (token.ok()) ++counts[static_cast<size_t>(token->id)];
  }
  return counts;
}

TEST(SamplerGolden, DrawsFromTheDistributionOfTransformers) {
  const std::vector<Case> cases = ReadCases();
  ASSERT_GE(cases.size(), 18u);
  for (const Case& given : cases) {
    SCOPED_TRACE(given.name);
    const std::vector<int> counts = Draw(given);
    double chi_square = 0, rare_mean = 0;
    int rare_count = 0, classes = 0;
    const auto add = [&](double mean, int count) {
      chi_square += (count - mean) * (count - mean) / mean;
      ++classes;
    };
    for (size_t id = 0; id < counts.size(); ++id) {
      const double mean = given.probabilities[id] * kDraws;
      if (mean == 0) {
        EXPECT_EQ(counts[id], 0) << "token " << id << " was cut off";
      } else if (mean < 5) {
        rare_mean += mean;
        rare_count += counts[id];
      } else {
        EXPECT_GT(counts[id], 0) << "token " << id;
        add(mean, counts[id]);
      }
    }
    if (rare_mean >= 5) add(rare_mean, rare_count);
    const double freedom = classes - 1;
    // Six standard deviations; the draws are the same in every run.
    EXPECT_LE(chi_square, freedom + 6 * std::sqrt(2 * freedom) + 1e-9);
  }
}

}  // namespace
}  // namespace moestro::model
