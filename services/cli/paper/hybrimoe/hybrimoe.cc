#include "services/cli/paper/hybrimoe/hybrimoe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/paper/hybrimoe/expert_systems.h"

namespace moestro::cli {
namespace {

using experts::Policy;
using experts::Schedule;

// Hit rates of Fig. 9 that section VI-D prints, with a quarter of the experts held.
struct PublishedHits {
  const char* model;
  const char* name;
  double lru;
  double mrs;
};
constexpr PublishedHits kHits[] = {{"mixtral-8x7b", "Mixtral", 0.302, 0.362},
                                   {"deepseek-v2-lite", "DeepSeek", 0.477, 0.527},
                                   {"qwen2-57b", "Qwen2", 0.450, 0.528}};
constexpr double kMixtralLru75 = 0.806, kMixtralMrs75 = 0.833;

constexpr std::array kRatios = {0.25, 0.5, 0.75};
constexpr std::array<int64_t, 4> kPrompts = {32, 128, 512, 1024};
constexpr std::array kSystems = {kLlamaCpp, kAdapMoE, kKTransformers, kHybriMoE};

// Table III, of Qwen2 with a quarter of the experts. It does not say how long the prompt is: Fig. 3 (d) has 128 tokens.
constexpr int64_t kTablePrompt = 128;
constexpr double kPromptSeconds = 1.47, kTokenSeconds = 0.21;

struct Part {
  const char* what;
  ExpertSystem system;
  double prompt;  // speedups; 0: not printed
  double token;
};
constexpr Part kParts[] = {
    {"scheduling", {.name = "+ scheduling", .schedule = Schedule::kHybrid}, 1.26, 1.46},
    {"prefetching", {.name = "+ prefetching", .prefetch_layers = 3}, 1.06, 1.15},
    {"caching", {.name = "+ caching", .policy = Policy::kMrs}, 0, 1.38},
    {"all", kHybriMoE, 1.31, 1.86},
};

// The report's models, with what was fitted.
class Models {
 public:
  explicit Models(const roofline::Machine& machine) {
    for (const PublishedHits& hits : kHits) {
      popularity_.push_back(ExpertReplays::FitPopularity(hits.model, kRatios[0], hits.lru));
      models_.emplace_back(machine, hits.model, popularity_.back());
    }
    // The baseline's time is a line in the host's, which two points give.
    const auto fit = [&](Stage stage, double wanted) {
      const auto seconds = [&](double rate) {
        Qwen2().SetRates({.seconds_a_row = rate, .seconds = rate});
        return Qwen2().Run(kKTransformers, stage, stage == Stage::kPrompt ? kTablePrompt : 1, kRatios[0]).seconds;
      };
      constexpr double kFast = 0.5, kSlow = 1;
      const double at_fast = seconds(kFast), at_slow = seconds(kSlow);
      return kFast + (wanted - at_fast) * (kSlow - kFast) / (at_slow - at_fast);
    };
    rates_.seconds_a_row = fit(Stage::kPrompt, kPromptSeconds);
    rates_.seconds = fit(Stage::kToken, kTokenSeconds);
    for (ExpertReplays& model : models_) model.SetRates(rates_);
  }
  ExpertReplays& Of(size_t model) { return models_[model]; }
  ExpertReplays& Qwen2() { return models_.back(); }
  double popularity(size_t model) const { return popularity_[model]; }
  const HostRates& rates() const { return rates_; }

 private:
  std::vector<double> popularity_;
  std::vector<ExpertReplays> models_;
  HostRates rates_;
};

void AddParts(Models& models, Figure& figure) {
  for (const Stage stage : {Stage::kPrompt, Stage::kToken}) {
    const bool prompt = stage == Stage::kPrompt;
    const char* const name = prompt ? "prompt" : "token";
    const auto seconds = [&](const ExpertSystem& system) {
      return models.Qwen2().Run(system, stage, prompt ? kTablePrompt : 1, kRatios[0]).seconds;
    };
    const double baseline = seconds(kKTransformers);
    figure.claims.push_back({.what = absl::StrFormat("s, %s, kTransformers", name),
                             .paper = prompt ? kPromptSeconds : kTokenSeconds,
                             .section = "Table III",
                             .ours = baseline,
                             .basis = Basis::kFitted});
    for (const Part& part : kParts) {
      const double paper = prompt ? part.prompt : part.token;
      if (paper == 0) continue;
      figure.claims.push_back({.what = absl::StrFormat("times as fast, %s, %s", name, part.what),
                               .paper = paper,
                               .section = "Table III",
                               .ours = baseline / seconds(part.system)});
    }
  }
}

// Seconds of every system in every setting, as a chart of bars; and how often and how far HybriMoE is ahead.
struct Grid {
  double average = 0;  // of kTransformers' time over HybriMoE's
  double least = 0;
  int64_t fastest = 0;     // settings in which HybriMoE is the fastest of all
  int64_t llama_last = 0;  // and those in which llama.cpp is slower than kTransformers
  int64_t settings = 0;
};

Grid AddGrid(Models& models, Stage stage, std::span<const int64_t> rows, const std::string& title, Figure& figure) {
  Grid grid;
  Chart chart{.title = title, .x_label = "", .y_label = "s"};
  for (const ExpertSystem& system : kSystems) chart.curves.push_back({.name = system.name, .points = {}});
  for (size_t model = 0; model < std::size(kHits); ++model) {
    ExpertReplays& replays = models.Of(model);
    for (const int64_t count : rows) {
      for (const double ratio : kRatios) {
        std::vector<double> seconds;
        for (size_t i = 0; i < kSystems.size(); ++i) {
          seconds.push_back(replays.Run(kSystems[i], stage, count, ratio).seconds);
          chart.curves[i].points.push_back({static_cast<double>(chart.groups.size()), seconds.back()});
        }
        chart.groups.push_back(absl::StrFormat("%s %s%.0f %%", kHits[model].name,
                                               stage == Stage::kPrompt ? absl::StrCat(count, ", ") : "", 100 * ratio));
        const double gain = seconds[2] / seconds[3];
        grid.average += gain;
        grid.least = grid.settings == 0 ? gain : std::min(grid.least, gain);
        grid.fastest += std::ranges::min_element(seconds) == seconds.end() - 1 ? 1 : 0;
        grid.llama_last += seconds[0] > seconds[2] ? 1 : 0;
        ++grid.settings;
      }
    }
  }
  grid.average /= static_cast<double>(grid.settings);
  figure.charts.push_back(std::move(chart));
  return grid;
}

void AddPrompts(Models& models, Figure& figure) {
  const Grid grid = AddGrid(models, Stage::kPrompt, kPrompts, "Figure 7: time to the first token", figure);
  figure.claims.push_back({.what = "times as fast as kTransformers, average of 36 settings",
                           .paper = 1.33,
                           .section = "VI-B",
                           .ours = grid.average});
  figure.claims.push_back({.what = "times as fast as kTransformers, least of them",
                           .paper = 1,
                           .bound = Bound::kAtLeast,
                           .section = "Fig. 7",
                           .ours = grid.least});
  figure.claims.push_back({.what = "settings of 36 in which it is the fastest of four",
                           .paper = 36,
                           .bound = Bound::kAtLeast,
                           .section = "VI-B",
                           .ours = static_cast<double>(grid.fastest)});
  figure.claims.push_back({.what = "settings of 36 in which llama.cpp is slower than kTransformers",
                           .paper = 36,
                           .bound = Bound::kAtLeast,
                           .section = "VI-B",
                           .ours = static_cast<double>(grid.llama_last)});
}

void AddTokens(Models& models, Figure& figure) {
  constexpr std::array<int64_t, 1> kOne = {1};
  const Grid grid = AddGrid(models, Stage::kToken, kOne, "Figure 8: time between tokens", figure);
  figure.claims.push_back({.what = "times as fast as kTransformers, average of nine settings",
                           .paper = 1.70,
                           .section = "VI-B",
                           .ours = grid.average});
  figure.claims.push_back({.what = "settings of nine in which it is the fastest of four",
                           .paper = 9,
                           .bound = Bound::kAtLeast,
                           .section = "Fig. 8",
                           .ours = static_cast<double>(grid.fastest)});
}

void AddCaches(Models& models, Figure& figure) {
  for (size_t i = 0; i < std::size(kHits); ++i) {
    const PublishedHits& paper = kHits[i];
    Chart chart{
        .title = absl::StrFormat("Figure 9: %s", paper.name),
        .x_label = "% of the experts held",
        .y_label = "% hits",
        .curves = {{.name = "LRU", .points = {}}, {.name = "LFU", .points = {}}, {.name = "MRS", .points = {}}}};
    double at_75 = 0, gain_75 = 0;
    for (const double ratio : kRatios) {
      constexpr std::array kPolicies = {Policy::kLru, Policy::kLfu, Policy::kMrs};
      std::array<double, kPolicies.size()> rates = {};
      for (size_t p = 0; p < kPolicies.size(); ++p) {
        rates[p] = ExpertReplays::HitRate(paper.model, models.popularity(i), kPolicies[p], ratio);
        chart.curves[p].points.push_back({100 * ratio, 100 * rates[p]});
      }
      const double gain = 100 * (rates[2] - rates[0]);
      if (ratio == kRatios[0]) {
        figure.claims.push_back({.what = absl::StrFormat("%% hits of LRU, %s, 25 %%", paper.name),
                                 .paper = 100 * paper.lru,
                                 .section = "VI-D",
                                 .ours = 100 * rates[0],
                                 .basis = Basis::kFitted});
        figure.claims.push_back({.what = absl::StrFormat("points that MRS hits more, %s, 25 %%", paper.name),
                                 .paper = 100 * (paper.mrs - paper.lru),
                                 .section = "VI-D",
                                 .ours = gain});
      }
      at_75 = rates[0];
      gain_75 = gain;
    }
    if (i == 0) {
      figure.claims.push_back({.what = "% hits of LRU, Mixtral, 75 %",
                               .paper = 100 * kMixtralLru75,
                               .section = "VI-D",
                               .ours = 100 * at_75});
      figure.claims.push_back({.what = "points that MRS hits more, Mixtral, 75 %",
                               .paper = 100 * (kMixtralMrs75 - kMixtralLru75),
                               .section = "VI-D",
                               .ours = gain_75});
    }
    figure.charts.push_back(std::move(chart));
  }
}

struct HybriMoEFigure {
  const char* id;
  const char* title;
  const char* about;
  void (*add)(Models&, Figure&);
};
constexpr HybriMoEFigure kFigures[] = {
    {"parts", "Table III: what each part gains",
     "Qwen2-57B, a quarter of the experts held. The prompt's length is not printed; here it has 128 tokens.", AddParts},
    {"7", "Figure 7: prompts", "Its bars have no printed values; the text gives their average.", AddPrompts},
    {"8", "Figure 8: tokens", "Its bars have no printed values; the text gives their average.", AddTokens},
    {"9", "Figure 9: hits of a cache by policy", "Every missed expert is loaded. One token a pass.", AddCaches},
};

}  // namespace

std::vector<std::string> HybriMoEFigures() {
  std::vector<std::string> ids;
  for (const HybriMoEFigure& figure : kFigures) ids.emplace_back(figure.id);
  return ids;
}

PaperReport MakeHybriMoEReport(const roofline::Machine& machine, const std::string& figure) {
  Models models(machine);
  PaperReport report{
      .name = "hybrimoe",
      .title = "HybriMoE (DAC '25)",
      .notes =
          {"Plans of recordings that no model made, on the paper's machine. Nothing below was run or measured here.",
           absl::StrFormat("Fitted: %.2f us that the host takes for a row of an expert of Qwen2 in a prompt, %.2f "
                           "ms for an expert of a token (Table III's baseline);",
                           1e6 * models.rates().seconds_a_row, 1e3 * models.rates().seconds),
           absl::StrFormat("and the popularity of experts, from LRU's hits: Mixtral %.2f, DeepSeek %.2f, Qwen2 "
                           "%.2f.",
                           models.popularity(0), models.popularity(1), models.popularity(2)),
           absl::StrFormat("Loads of an expert: Mixtral %.2f ms, DeepSeek %.3f (the paper's program has 0.418), "
                           "Qwen2 %.2f.",
                           1e3 * models.Of(0).LoadSeconds(), 1e3 * models.Of(1).LoadSeconds(),
                           1e3 * models.Of(2).LoadSeconds())},
      .figures = {}};
  for (const HybriMoEFigure& candidate : kFigures) {
    if (!figure.empty() && figure != candidate.id) continue;
    Figure added{.id = candidate.id, .title = candidate.title, .about = candidate.about};
    candidate.add(models, added);
    report.figures.push_back(std::move(added));
  }
  return report;
}

}  // namespace moestro::cli
