#include "common/model/moe/feed_forward.h"

#include <algorithm>
#include <span>

#include "common/base/math.h"
#include "common/base/status.h"
#include "common/tensor/packed_matrix.h"

namespace moestro::model {
namespace {

// Experts per scoring task: 115 KB of weights at the published geometry. One row alone gives enough tasks for 64
// workers: one worker would read the 7.3 MB of weights as long as all workers compute an expert. With many rows, a
// task's weights stay in the core's cache.
constexpr int64_t kScoredTogether = 4;

// x = norm(residual), then the choice of experts, in one run with these tasks in this order in every domain:
//   norm    one row each
//   score   the logits of some experts for all rows
//   choose  one row each, with the shared expert's weight
class NormAndRouteTasks {
 public:
  NormAndRouteTasks(const EngineContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                    const RowsView& rows)
      : context_(context),
        spec_(context.spec),
        kernels_(context.kernels),
        gating_(gating),
        weights_(weights),
        rows_(rows),
        routes_(weights.router != nullptr),
        domains_(context.pool.domains()) {}

  void Run() {
    gating_.rows_normed.Reset(rows_.count);
    int64_t score_tasks = 0;
    for (int domain = 0; domain < domains_; ++domain) score_tasks += ScoreTasks(domain);
    gating_.tasks_scored.Reset(score_tasks);
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
  IndexRange RowsOf(int domain) const { return EvenPart(rows_.count, domain, domains_); }

  // The domain's experts: those whose 64-row slices of the router are in its memory.
  IndexRange ExpertsOf(int domain) const {
    if (!routes_) return {};
    const IndexRange slices = EvenPart(CeilDiv(spec_.num_experts, kRowGroup), domain, domains_);
    return {std::min(slices.begin * kRowGroup, spec_.num_experts), std::min(slices.end * kRowGroup, spec_.num_experts)};
  }
  int64_t ScoreTasks(int domain) const { return CeilDiv(ExpertsOf(domain).size(), kScoredTogether); }

  void Norm(int64_t row) {
    const int64_t hidden = spec_.hidden_size;
    NormResidual(context_, rows_.residual + row * hidden, weights_.norm, gating_.normed.get() + row * hidden,
                 rows_.x + row * hidden);
    gating_.rows_normed.Arrive();
  }

  // Reads the F32 form of the input: the choice of experts is not continuous in it.
  void Score(int domain, int64_t task) {
    gating_.rows_normed.Wait();
    const int64_t begin = ExpertsOf(domain).begin + task * kScoredTogether;
    const int64_t count = std::min(kScoredTogether, ExpertsOf(domain).end - begin);
    for (int64_t row = 0; row < rows_.count; ++row) {
      kernels_.router_logits(weights_.router + begin * spec_.hidden_size, count, spec_.hidden_size,
                             gating_.normed.get() + row * spec_.hidden_size,
                             gating_.logits.get() + row * spec_.num_experts + begin);
      if (weights_.logit_bias != nullptr) {
        kernels_.axpy(1.0f, weights_.logit_bias + begin, count, gating_.logits.get() + row * spec_.num_experts + begin);
      }
    }
    gating_.tasks_scored.Arrive();
  }

  void Choose(int64_t row) {
    gating_.tasks_scored.Wait();
    gating_.row_status[row] =
        ChooseExperts(spec_, std::span(gating_.logits.get() + row * spec_.num_experts, spec_.num_experts),
                      std::span(weights_.bias, weights_.bias != nullptr ? spec_.num_experts : 0),
                      std::span(gating_.choices).subspan(row * spec_.experts_per_token, spec_.experts_per_token));
    if (weights_.shared_gate == nullptr) return;
    float logit;
    kernels_.router_logits(weights_.shared_gate, 1, spec_.hidden_size, gating_.normed.get() + row * spec_.hidden_size,
                           &logit);
    rows_.shared_weights[row] = Sigmoid(logit);
  }

  const EngineContext& context_;
  const weights::ModelSpec& spec_;
  const CpuKernels& kernels_;
  GatingBuffers& gating_;
  const FeedForwardWeights& weights_;
  const RowsView& rows_;
  bool routes_;
  int domains_;
};

}  // namespace

template <typename Take>
void GatingBuffers::Visit(const weights::ModelSpec& spec, int64_t max_rows, Take&& take) {
  take(normed, max_rows * spec.hidden_size);
  take(logits, max_rows * spec.num_experts);
}

GatingBuffers::GatingBuffers(const weights::ModelSpec& spec, int64_t max_rows)
    : choices(static_cast<size_t>(max_rows * spec.experts_per_token)), row_status(static_cast<size_t>(max_rows)) {
  Visit(spec, max_rows, AllocateBuffers());
}

int64_t GatingBuffers::Bytes(const weights::ModelSpec& spec, int64_t max_rows) {
  CountBufferBytes count;
  GatingBuffers().Visit(spec, max_rows, count);
  return count.bytes;
}

absl::Status NormAndRoute(const EngineContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                          const RowsView& rows) {
  NormAndRouteTasks(context, gating, weights, rows).Run();
  if (weights.router == nullptr) return absl::OkStatus();
  for (int64_t row = 0; row < rows.count; ++row) MOE_RETURN_IF_ERROR(gating.row_status[row]);
  return absl::OkStatus();
}

absl::Status RunFeedForward(const MoeContext& context, GatingBuffers& gating, const FeedForwardWeights& weights,
                            const RowsView& rows) {
  MOE_RETURN_IF_ERROR(NormAndRoute(context, gating, weights, rows));
  std::span<const ExpertChoice> choices;
  if (weights.router != nullptr) {
    choices = std::span(gating.choices).first(rows.count * context.spec.experts_per_token);
  }
  RunMoe(context, weights, rows, choices);
  return absl::OkStatus();
}

}  // namespace moestro::model
