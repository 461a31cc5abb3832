#include "common/experts/routing_statistics.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace moestro::experts {
namespace {

double Ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

RoutingStatistics::RoutingStatistics(const model::RoutingTraceModel& model)
    : model_(model),
      uses_(static_cast<size_t>(model.moe_layers * model.num_experts)),
      predictor_(model.moe_layers, model.num_experts),
      predictable_(static_cast<size_t>(model.predicted_layers + 1)),
      foreseen_(static_cast<size_t>(model.predicted_layers + 1)) {}

void RoutingStatistics::Add(const model::RoutingStep& step) {
  ++passes_;
  for (const model::TracedToken& token : step.tokens) ++(token.prompt ? prompt_tokens_ : generated_tokens_);
  std::vector<bool> seen(uses_.size());
  for (size_t i = 0; i < step.choices.size(); ++i) {
    const size_t layer = i / static_cast<size_t>(model_.experts_per_token) % static_cast<size_t>(model_.moe_layers);
    const size_t expert = layer * static_cast<size_t>(model_.num_experts) + static_cast<size_t>(step.choices[i].expert);
    ++uses_[expert];
    if (!seen[expert]) ++different_;
    seen[expert] = true;
  }
  if (std::ranges::none_of(step.tokens, &model::TracedToken::prompt)) CountLoads(step);
  CountForeseen(step);
}

std::vector<RoutingStatistics::Class> RoutingStatistics::Classify(const std::vector<float>& loads) {
  std::vector<size_t> order(loads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t expert) { return loads[expert]; });
  const size_t hot = std::max<size_t>(1, order.size() / 10), cold = order.size() - order.size() * 7 / 10;
  std::vector<Class> classes(loads.size(), Class::kWarm);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    if (rank < hot) classes[order[rank]] = Class::kHot;
    if (rank >= cold) classes[order[rank]] = Class::kCold;
  }
  return classes;
}

void RoutingStatistics::CountLoads(const model::RoutingStep& step) {
  const int64_t k = model_.experts_per_token;
  for (int64_t i = 0; i < model_.moe_layers; ++i) {
    std::vector<int32_t> rows(static_cast<size_t>(model_.num_experts));
    for (int64_t token = 0; token < std::ssize(step.tokens); ++token) {
      for (int64_t j = 0; j < k; ++j) {
        ++rows[static_cast<size_t>(step.choices[static_cast<size_t>((token * model_.moe_layers + i) * k + j)].expert)];
      }
    }
    const std::vector<Class> classes = Classify({rows.begin(), rows.end()});
    for (size_t e = 0; e < rows.size(); ++e) {
      loads_ += rows[e];
      if (classes[e] == Class::kCold) cold_loads_ += rows[e];
    }
    if (predictor_.Knows(i)) {
      std::vector<float> averages;
      for (int64_t e = 0; e < model_.num_experts; ++e) averages.push_back(predictor_.At(i, e));
      const std::vector<Class> predicted = Classify(averages);
      classed_ += std::ssize(classes);
      for (size_t e = 0; e < classes.size(); ++e) classed_right_ += classes[e] == predicted[e] ? 1 : 0;
    }
    predictor_.Update(i, rows);
  }
}

void RoutingStatistics::CountForeseen(const model::RoutingStep& step) {
  const int64_t k = model_.experts_per_token;
  for (int64_t ahead = 1; ahead <= model_.predicted_layers; ++ahead) {
    for (int64_t token = 0; token < std::ssize(step.tokens); ++token) {
      for (int64_t layer = ahead; layer < model_.moe_layers; ++layer) {
        const uint8_t* const set = step.predicted.data() + model_.SetAt(token, layer, ahead);
        const model::ExpertChoice* const choices = step.choices.data() + (token * model_.moe_layers + layer) * k;
        for (int64_t j = 0; j < k; ++j) {
          foreseen_[static_cast<size_t>(ahead)] += set[choices[j].expert / 8] >> (choices[j].expert % 8) & 1;
        }
        predictable_[static_cast<size_t>(ahead)] += k;
      }
    }
  }
}

double RoutingStatistics::DifferentExperts() const { return Ratio(different_, passes_ * model_.moe_layers); }
double RoutingStatistics::ColdShare() const { return Ratio(cold_loads_, loads_); }
double RoutingStatistics::AverageAccuracy() const { return Ratio(classed_right_, classed_); }
double RoutingStatistics::Foreseen(int64_t ahead) const {
  return Ratio(foreseen_[static_cast<size_t>(ahead)], predictable_[static_cast<size_t>(ahead)]);
}

double RoutingStatistics::HottestTenth() const {
  const int64_t tenth = std::max<int64_t>(1, model_.num_experts / 10);
  int64_t sum = 0;
  for (int64_t layer = 0; layer < model_.moe_layers; ++layer) {
    const auto begin = uses_.begin() + layer * model_.num_experts;
    std::vector<int64_t> uses(begin, begin + model_.num_experts);
    std::ranges::partial_sort(uses, uses.begin() + tenth, std::greater<>());
    sum += std::accumulate(uses.begin(), uses.begin() + tenth, int64_t{0});
  }
  return Ratio(sum, (prompt_tokens_ + generated_tokens_) * model_.choices_per_token());
}

}  // namespace moestro::experts
