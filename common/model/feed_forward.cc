#include "common/model/feed_forward.h"

#include <algorithm>
#include <span>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/tensor/packed_matrix.h"

namespace moestro {
namespace {

// Experts whose router logits one task computes: 115 KB of weights at the published geometry. One row alone gives
// enough tasks for 64 workers (reading 7.3 MB of weights would keep one worker as long as all of them an expert), and
// with many rows a task's weights stay in the core's cache.
constexpr int64_t kScoredTogether = 4;

// x = norm(residual), then the choice of experts, in one run of tasks in this order in every domain:
//   norm    a row each
//   score   the logits of some experts for all rows
//   choose  a row each
class NormAndRouteTasks {
 public:
  NormAndRouteTasks(EngineContext& context, const FeedForwardWeights& weights, int64_t rows)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        a_(context.activations),
        progress_(context.moe_progress),
        weights_(weights),
        rows_(rows),
        routes_(weights.router != nullptr),
        domains_(context.pool.domains()) {}

  void Run() {
    progress_.normed.Reset(rows_);
    int64_t score_tasks = 0;
    for (int domain = 0; domain < domains_; ++domain) score_tasks += ScoreTasks(domain);
    progress_.scored.Reset(score_tasks);
    context_.pool.RunPerDomain(
        [this](int domain) { return RowsOf(domain).size() * (routes_ ? 2 : 1) + ScoreTasks(domain); },
        [this](int domain, int64_t task, int) {
          const IndexRange rows = RowsOf(domain);
          if (task < rows.size()) return Norm(rows.begin + task);
          task -= rows.size();
          if (task < ScoreTasks(domain)) return Score(domain, task);
          Choose(rows.begin + task - ScoreTasks(domain));
        });
  }

 private:
  IndexRange RowsOf(int domain) const { return EvenPart(rows_, domain, domains_); }

  // Of the domain: those whose 64-row slices of the router lie in its memory.
  IndexRange ExpertsOf(int domain) const {
    if (!routes_) return {};
    const IndexRange slices = EvenPart(CeilDiv(spec_.num_experts, kRowGroup), domain, domains_);
    return {std::min(slices.begin * kRowGroup, spec_.num_experts), std::min(slices.end * kRowGroup, spec_.num_experts)};
  }
  int64_t ScoreTasks(int domain) const { return CeilDiv(ExpertsOf(domain).size(), kScoredTogether); }

  void Norm(int64_t row) {
    const int64_t hidden = spec_.hidden_size;
    kernels_.rms_norm(a_.residual.get() + row * hidden, weights_.norm, hidden, static_cast<float>(spec_.rms_norm_eps),
                      a_.normed.get() + row * hidden, a_.normed_narrow.get() + row * hidden);
    progress_.normed.Arrive();
  }

  // Reads the F32 form of the input: a choice between experts is not continuous in it.
  void Score(int domain, int64_t task) {
    progress_.normed.Wait();
    const int64_t begin = ExpertsOf(domain).begin + task * kScoredTogether;
    const int64_t count = std::min(kScoredTogether, ExpertsOf(domain).end - begin);
    for (int64_t row = 0; row < rows_; ++row) {
      kernels_.router_logits(weights_.router + begin * spec_.hidden_size, count, spec_.hidden_size,
                             a_.normed.get() + row * spec_.hidden_size,
                             a_.router_logits.get() + row * spec_.num_experts + begin);
    }
    progress_.scored.Arrive();
  }

  void Choose(int64_t row) {
    progress_.scored.Wait();
    a_.row_status[row] =
        ChooseExperts(spec_, std::span(a_.router_logits.get() + row * spec_.num_experts, spec_.num_experts),
                      std::span(weights_.bias, weights_.bias != nullptr ? spec_.num_experts : 0),
                      std::span(a_.choices).subspan(row * spec_.experts_per_token, spec_.experts_per_token));
  }

  EngineContext& context_;
  const ModelSpec& spec_;
  const CpuKernels& kernels_;
  Activations& a_;
  MoeProgress& progress_;
  const FeedForwardWeights& weights_;
  int64_t rows_;
  bool routes_;
  int domains_;
};

}  // namespace

absl::Status NormAndRoute(EngineContext& context, const FeedForwardWeights& weights, int64_t rows) {
  NormAndRouteTasks(context, weights, rows).Run();
  if (weights.router == nullptr) return absl::OkStatus();
  for (int64_t row = 0; row < rows; ++row) MOE_RETURN_IF_ERROR(context.activations.row_status[row]);
  return absl::OkStatus();
}

absl::Status RunFeedForward(EngineContext& context, const FeedForwardWeights& weights, int64_t rows) {
  MOE_RETURN_IF_ERROR(NormAndRoute(context, weights, rows));
  std::span<const ExpertChoice> choices;
  if (weights.router != nullptr) {
    choices = std::span(context.activations.choices).first(rows * context.spec.experts_per_token);
  }
  RunMoe(MoeContextOf(context), weights, rows, choices);
  return absl::OkStatus();
}

}  // namespace moestro
