#include "common/engine/host/host_rank_kernels.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/base/status.h"

namespace moestro::engine {

using model::ExpertChoice;

namespace {

// A kernel that cannot fail.
template <typename Work>
device::Kernel MakeKernel(const char* name, Work work) {
  return {.name = name, .cost = {}, .run = [work = std::move(work)](void*) {
            work();
            return absl::OkStatus();
          }};
}

}  // namespace

// Tiles are of the rank's rows, and of other ranks' rows in experts: a rank with few rows gets as large ones as others.
PromptForward::Options HostRankKernels::OptionsFor(int64_t own_rows) const {
  return {.max_rows = std::max(own_rows, tile_rows_), .tile_rows = tile_rows_, .parts = true};
}

int64_t HostRankKernels::ActivationBytes(const RankShare& share) const {
  return PromptForwardBytes(spec_, pool_.threads(), OptionsFor(share.own_rows()));
}

absl::Status HostRankKernels::Begin(const RankShare& share) {
  share_ = share;
  page_numbers_.resize(static_cast<size_t>(CeilDiv(share.end, kv::kPageTokens)));
  std::iota(page_numbers_.begin(), page_numbers_.end(), 0);
  forward_ = std::make_unique<PromptForward>(spec_, kernels_, pool_, OptionsFor(share.own_rows()));
  if (share.own_rows() == 0) return absl::OkStatus();
  const std::vector<kv::KvPages> pages(RankShare::kStripes, share.pages);
  return forward_->Begin(share.rows, pages, share.form);
}

template <typename Work>
device::Kernel HostRankKernels::OfRows(const char* name, Work work) const {
  return MakeKernel(name, [has_rows = share_.own_rows() > 0, work = std::move(work)] {
    if (has_rows) work();
  });
}

device::Kernel HostRankKernels::Embed() {
  return OfRows("embed", [this] { forward_->Embed(weights_.embedding); });
}

device::Kernel HostRankKernels::Dense(const StagedModule& dense) {
  return OfRows("dense", [this, w = dense.FeedForward(spec_, weights_)] { forward_->Dense(w); });
}

device::Kernel HostRankKernels::SharedExpert(const StagedModule& router) {
  return OfRows("shared expert",
                [this, w = router.FeedForward(spec_, weights_).dense] { forward_->RunSharedExpert(w); });
}

device::Kernel HostRankKernels::Head(const StagedModule& slice) {
  return OfRows("head", [this, head = slice.Head(weights_), norm = slice.FinalNorm(weights_)] {
    if (norm != nullptr) forward_->FinalNorm(norm);
    forward_->Head(head);
  });
}

absl::Status HostRankKernels::Logits(absl::FunctionRef<void(int64_t row, std::span<const float> logits)> on_logits) {
  if (share_.own_rows() == 0) return absl::OkStatus();
  return forward_->Logits(on_logits);
}

kv::KvPages HostRankKernels::LayerKv(const uint16_t* kv) const {
  const kv::KvGeometry geometry{.num_layers = 1,
                                .kv_dim = spec_.kv_dim(),
                                .page_tokens = kv::kPageTokens,
                                .page_count = std::ssize(page_numbers_),
                                .lease_slots = 0};
  return {geometry, reinterpret_cast<uint8_t*>(const_cast<uint16_t*>(kv)), page_numbers_};
}

device::Kernel HostRankKernels::ProjectKv(const StagedModule& attention, uint16_t* kv) {
  return OfRows("project keys and values", [this, w = attention.Attention(spec_, share_.form, weights_),
                                            pages = LayerKv(kv)] { forward_->ProjectKv(w, pages); });
}

int64_t HostRankKernels::attention_tiles() const { return share_.own_rows() == 0 ? 0 : forward_->attention_tiles(); }

device::Kernel HostRankKernels::BeginAttention(const StagedModule& attention, int64_t tile) {
  return OfRows("queries", [this, w = attention.Attention(spec_, share_.form, weights_), tile] {
    forward_->BeginAttention(tile, w);
  });
}

device::Kernel HostRankKernels::AttendTo(const StagedModule& attention, int64_t tile, const uint16_t* kv,
                                         std::vector<IndexRange> blocks) {
  return OfRows("attention", [this, w = attention.Attention(spec_, share_.form, weights_), tile, pages = LayerKv(kv),
                              blocks = std::move(blocks)] { forward_->AttendTo(tile, w, pages, blocks); });
}

device::Kernel HostRankKernels::FinishAttention(const StagedModule& attention, int64_t tile) {
  return OfRows("attended", [this, w = attention.Attention(spec_, share_.form, weights_), tile] {
    forward_->FinishAttention(tile, w);
  });
}

device::Kernel HostRankKernels::Route(const StagedModule& router, uint16_t* x, ExpertChoice* choices) {
  return {.name = "route",
          .cost = {},
          .run = [this, w = router.FeedForward(spec_, weights_), x, choices](void*) -> absl::Status {
            if (share_.own_rows() == 0) return absl::OkStatus();
            MOE_RETURN_IF_ERROR(forward_->Route(w));
            std::copy_n(forward_->expert_input(), share_.own_rows() * spec_.hidden_size, x);
            std::ranges::copy(forward_->choices(), choices);
            return absl::OkStatus();
          }};
}

device::Kernel HostRankKernels::Clear(std::span<float> sums) {
  return MakeKernel("clear", [sums] { std::ranges::fill(sums, 0.0f); });
}

device::Kernel HostRankKernels::Sort(std::span<const ExpertChoice> choices, int64_t per_row) {
  return MakeKernel("sort", [this, choices, per_row] { plan_.Sort(choices, per_row, spec_.num_experts); });
}

device::Kernel HostRankKernels::Experts(std::span<const StagedModule> experts, const uint16_t* x, float* sums) {
  return MakeKernel("experts",
                    [this, weights = StagedExperts(weights_, experts), first = experts[0].module->index, x, sums] {
                      forward_->Experts({weights, first}, plan_, x, sums);
                    });
}

device::Kernel HostRankKernels::AddExperts(const StagedModule& router, std::vector<float*> parts) {
  return OfRows("add up", [this, w = router.FeedForward(spec_, weights_).dense, parts = std::move(parts)] {
    forward_->AddExperts(w, parts);
  });
}

template <typename Visit>
void HostRankKernels::ForPairs(const ExpertChoice* choices, Visit visit) const {
  int64_t pair = 0;
  for (int rank = 0; rank < share_.ranks(); ++rank) {
    const IndexRange experts = share_.Experts(spec_, rank);
    for (int64_t row = 0; row < share_.own_rows(); ++row) {
      for (int64_t i = row * spec_.experts_per_token; i < (row + 1) * spec_.experts_per_token; ++i) {
        if (choices[i].expert < experts.begin || choices[i].expert >= experts.end) continue;
        visit(pair++, row, choices[i]);
      }
    }
  }
}

device::Kernel HostRankKernels::CountPairs(const ExpertChoice* choices) {
  return MakeKernel("count", [this, choices] {
    pairs_ = {std::vector<int64_t>(static_cast<size_t>(share_.ranks())), 0};
    ForPairs(choices, [&](int64_t, int64_t, const ExpertChoice& choice) {
      ++pairs_.counts[static_cast<size_t>(roofline::RankOfExpert(spec_, share_.parts, choice.expert))];
      ++pairs_.total;
    });
  });
}

device::Kernel HostRankKernels::Pack(const uint16_t* x, const ExpertChoice* choices, uint16_t* pair_x,
                                     int32_t* pair_experts) {
  return MakeKernel("pack", [this, x, choices, pair_x, pair_experts] {
    ForPairs(choices, [&](int64_t pair, int64_t row, const ExpertChoice& choice) {
      std::copy_n(x + row * spec_.hidden_size, spec_.hidden_size, pair_x + pair * spec_.hidden_size);
      pair_experts[pair] = choice.expert;
    });
  });
}

device::Kernel HostRankKernels::SortPairs(std::span<const int32_t> experts) {
  return MakeKernel("sort", [this, experts] {
    std::vector<ExpertChoice> choices;
    for (const int32_t expert : experts) choices.push_back({expert, 1.0f});
    plan_.Sort(choices, 1, spec_.num_experts);
  });
}

device::Kernel HostRankKernels::CombinePairs(const ExpertChoice* choices, const float* sums, float* totals) {
  return OfRows("weigh", [this, choices, sums, totals] {
    const int64_t hidden = spec_.hidden_size;
    std::fill_n(totals, share_.own_rows() * hidden, 0.0f);
    // A row's pairs come in ascending id: ranks have ascending experts.
    ForPairs(choices, [&](int64_t pair, int64_t row, const ExpertChoice& choice) {
      kernels_.axpy(choice.weight, sums + pair * hidden, hidden, totals + row * hidden);
    });
  });
}

device::Kernel HostRankKernels::Copy(uint8_t* to, const uint8_t* from, int64_t bytes) {
  return MakeKernel("copy", [to, from, bytes] {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  });
}

}  // namespace moestro::engine
