#include "common/experts/routing_statistics.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace moestro::experts {
namespace {

constexpr double kNewest = 0.3;  // weight of the last pass in the moving average

double Ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

RoutingStatistics::RoutingStatistics(const model::RoutingTraceModel& model)
    : model_(model),
      uses_(static_cast<size_t>(model.moe_layers * model.num_experts)),
      layers_(static_cast<size_t>(model.moe_layers)),
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

std::vector<RoutingStatistics::Class> RoutingStatistics::Classify(const std::vector<double>& loads) const {
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
    std::vector<double> loads(static_cast<size_t>(model_.num_experts));
    for (int64_t token = 0; token < std::ssize(step.tokens); ++token) {
      for (int64_t j = 0; j < k; ++j) {
        ++loads[static_cast<size_t>(step.choices[static_cast<size_t>((token * model_.moe_layers + i) * k + j)].expert)];
      }
    }
    const std::vector<Class> classes = Classify(loads);
    for (size_t e = 0; e < loads.size(); ++e) {
      loads_ += static_cast<int64_t>(loads[e]);
      if (classes[e] == Class::kCold) cold_loads_ += static_cast<int64_t>(loads[e]);
    }
    Layer& layer = layers_[static_cast<size_t>(i)];
    if (layer.average.empty()) {
      layer.average = loads;
    } else {
      classed_ += std::ssize(classes);
      for (size_t e = 0; e < classes.size(); ++e) classed_right_ += classes[e] == layer.predicted[e] ? 1 : 0;
      for (size_t e = 0; e < loads.size(); ++e) layer.average[e] += kNewest * (loads[e] - layer.average[e]);
    }
    layer.predicted = Classify(layer.average);
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
