#include "loadtest/workloads/ramp.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace moestro::loadtest {
namespace {

constexpr double kNoise = 1.05;  // a smaller factor counts as no gain

double BestGoodput(std::vector<RampStep>::const_iterator begin, std::vector<RampStep>::const_iterator end) {
  double best = 0;
  for (auto step = begin; step != end; ++step) best = std::max(best, step->goodput());
  return best;
}

}  // namespace

std::optional<size_t> FindKnee(const std::vector<RampStep>& steps) {
  const auto end = std::ranges::find(steps, false, &RampStep::finished);
  const double best = BestGoodput(steps.begin(), end);
  const auto knee = std::find_if(steps.begin(), end, [&](const auto& step) { return step.goodput() * kNoise >= best; });
  if (best == 0 || end - knee < 2) return std::nullopt;
  return static_cast<size_t>(knee - steps.begin());
}

std::string StepName(const RampOptions& options, double level) {
  return absl::StrCat(level, options.open_loop ? " per second" : " at a time");
}

RampWorkload::RampWorkload(const RampOptions& options) : options_(options), traffic_(options.traffic) {
  BeginStep(options_.first, 0);
}

void RampWorkload::BeginStep(double level, double now) {
  steps_.push_back({.level = level, .begin = now, .end = now, .requests = 0, .good = 0, .finished = false});
  if (options_.open_loop) arrivals_.emplace(level, now, options_.traffic.seed + 2 + steps_.size());
}

void RampWorkload::MaybeBeginNext(double now) {
  const double level = options_.open_loop
                           ? steps_.back().level * options_.factor
                           : std::max(steps_.back().level + 1, std::round(steps_.back().level * options_.factor));
  steps_.back().finished = true;
  over_ = level > options_.last;
  if (steps_.size() > 2) {
    const auto last_two = steps_.end() - 2;
    over_ |= BestGoodput(last_two, steps_.end()) < kNoise * BestGoodput(steps_.begin(), last_two);
  }
  if (!over_) BeginStep(level, now);
}

std::optional<double> RampWorkload::StepArrival(double now) const {
  const RampStep& step = steps_.back();
  const double stop = step.begin + options_.step_seconds;
  if (options_.open_loop) return arrivals_->next() < stop ? std::optional(arrivals_->next()) : std::nullopt;
  const bool first = step.requests < static_cast<int64_t>(step.level);  // each place is used at least once
  if (running_ >= static_cast<int64_t>(step.level) || (now >= stop && !first)) return std::nullopt;
  return now;
}

std::optional<double> RampWorkload::NextArrival(double now) {
  if (!over_ && running_ == 0 && !StepArrival(now)) MaybeBeginNext(now);
  return over_ ? std::nullopt : StepArrival(now);
}

Request RampWorkload::Take(double) {
  if (arrivals_) arrivals_->Advance();
  ++running_;
  ++steps_.back().requests;
  return traffic_.Next(StepName(options_, steps_.back().level));
}

void RampWorkload::OnEnd(const Record& record) {
  --running_;
  RampStep& step = steps_.back();
  step.end = std::max(step.end, *record.ended);
  if (MeetsSlo(record, options_.slo)) ++step.good;
}

}  // namespace moestro::loadtest
