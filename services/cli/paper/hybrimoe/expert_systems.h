// HybriMoE and the systems that its paper compares it with, replayed on recordings that no model made: seconds of a
// prompt or of a token, by the planner that decode uses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/experts/expert_planner.h"
#include "common/experts/replay.h"
#include "common/experts/synthetic_trace.h"
#include "common/roofline/roofline.h"
#include "common/weights/model_spec.h"
#include "services/cli/plan/layer_seconds.h"

namespace moestro::cli {

// What a system does with experts that the device does not hold.
struct ExpertSystem {
  const char* name;
  experts::Schedule schedule = experts::Schedule::kFixed;
  experts::Policy policy = experts::Policy::kFirstLayers;
  int64_t prefetch_layers = 0;
  bool host_layers = false;  // of layers whose experts are on the host, the host also computes the rest
};

// Experts of the first layers on the device, the others' on the host.
inline constexpr ExpertSystem kKTransformers = {.name = "kTransformers"};
inline constexpr ExpertSystem kLlamaCpp = {.name = "llama.cpp", .host_layers = true};
inline constexpr ExpertSystem kAdapMoE = {
    .name = "AdapMoE", .schedule = experts::Schedule::kOnDemand, .policy = experts::Policy::kLru, .prefetch_layers = 1};
inline constexpr ExpertSystem kHybriMoE = {
    .name = "HybriMoE", .schedule = experts::Schedule::kHybrid, .policy = experts::Policy::kMrs, .prefetch_layers = 3};

// A pass is a prompt, or a token.
enum class Stage { kPrompt, kToken };

// What the host takes for an expert of Qwen2-57B, which the paper's baseline gives. Other models' experts take as much
// more as they are larger.
struct HostRates {
  double seconds_a_row = 0;  // in prompts, where the host multiplies
  double seconds = 0;        // of one row, where it reads the expert
};

struct Replayed {
  double seconds = 0;  // of a pass
  double hit_rate = 0;
};

class ExpertReplays {
 public:
  // A published model on the machine, with recordings of `popularity`. All else is SyntheticRouting's default, and
  // routers foresee as those of the demo model do.
  ExpertReplays(const roofline::Machine& machine, const std::string& model, double popularity);

  // rows: of the prompt, or 1. ratio: share of the experts that the device holds. Passes before, whose loads
  // take no time, have filled the cache.
  Replayed Run(const ExpertSystem& system, Stage stage, int64_t rows, double ratio);
  double LoadSeconds() const { return seconds_.Load(); }
  void SetRates(const HostRates& rates) { rates_ = rates; }
  // The popularity with which LRU has these hits where every missed expert is loaded, as a model's tokens have.
  static double FitPopularity(const std::string& model, double ratio, double hit_rate);
  // Of every missed expert's load, a token at a time.
  static double HitRate(const std::string& model, double popularity, experts::Policy policy, double ratio);

 private:
  struct Recording {
    model::RoutingTraceModel model;
    std::vector<model::RoutingStep> passes;
  };
  const Recording& RecordingOf(Stage stage, int64_t rows);
  experts::ExpertCosts Costs(Stage stage, int64_t rows) const;

  const roofline::Machine& machine_;
  const weights::ModelSpec spec_;
  const LayerSeconds seconds_;
  const double popularity_;
  HostRates rates_;
  std::map<int64_t, Recording> recordings_;  // by rows of a prompt; 0: tokens
};

}  // namespace moestro::cli
