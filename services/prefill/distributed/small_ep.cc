#include <vector>

#include "common/base/status.h"
#include "services/prefill/distributed/expert_exchange.h"

namespace moestro::prefill {
namespace {

using collective::Call;
using collective::ReceiveBlock;
using collective::SendBlock;

class SmallEp final : public ExpertExchange {
 public:
  SmallEp(const weights::ModelSpec& spec, device::Device& device, collective::Communicator& communicator,
          engine::RankKernels& kernels)
      : spec_(spec), device_(device), communicator_(communicator), kernels_(kernels) {}

  absl::Status Begin(const RankRun& run) override {
    run_ = run;
    MOE_ASSIGN_OR_RETURN(x_, device_.Allocate(run.all_rows() * x_bytes(), "all ranks' tokens"));
    MOE_ASSIGN_OR_RETURN(choices_, device_.Allocate(run.all_rows() * choice_bytes(), "all ranks' choices"));
    MOE_ASSIGN_OR_RETURN(sums_, device_.Allocate(run.all_rows() * sum_bytes(), "sums for all ranks"));
    const int64_t parts = (run.ranks() - 1) * run.own_rows();
    MOE_ASSIGN_OR_RETURN(parts_, device_.Allocate(parts * sum_bytes(), "sums of all ranks"));
    return absl::OkStatus();
  }

  void End() override {
    for (device::Memory* memory : {&x_, &choices_, &sums_, &parts_}) *memory = device::Memory();
  }

  absl::Status Route(const engine::StagedModule& router, LaunchKernel launch) override {
    const int64_t first = run_.split->FirstRow(run_.rank);
    return launch(kernels_.Route(router, x() + first * spec_.hidden_size, choices() + first * spec_.experts_per_token));
  }

  absl::Status Dispatch(const Call& call, LaunchKernel launch) override {
    MOE_RETURN_IF_ERROR(Gather(call, x_.data(), x_bytes()));
    MOE_RETURN_IF_ERROR(Gather(call, choices_.data(), choice_bytes()));
    const int64_t rows = run_.all_rows();
    return launch(kernels_.Sort({choices(), static_cast<size_t>(rows * spec_.experts_per_token)},
                                spec_.experts_per_token, {sums(), static_cast<size_t>(rows * spec_.hidden_size)}));
  }

  absl::Status Experts(std::span<const engine::StagedModule> experts, LaunchKernel launch) override {
    return launch(kernels_.Experts(experts, x(), sums()));
  }

  absl::Status Combine(const Call& call, LaunchKernel launch) override {
    std::vector<SendBlock> to;
    std::vector<ReceiveBlock> from;
    std::vector<const float*> parts;  // of the rank's rows, by rank
    uint8_t* part = parts_.data();
    for (int rank = 0; rank < run_.ranks(); ++rank) {
      uint8_t* own = sums_.data() + run_.split->FirstRow(rank) * sum_bytes();
      to.push_back({own, run_.split->Rows(rank) * sum_bytes()});
      from.push_back({part, run_.own_rows() * sum_bytes()});
      parts.push_back(reinterpret_cast<const float*>(rank == run_.rank ? own : part));
      if (rank != run_.rank) part += run_.own_rows() * sum_bytes();
    }
    MOE_RETURN_IF_ERROR(communicator_.AllToAll(call, to, from));
    return launch(kernels_.SumPartials(std::move(parts)));
  }

 private:
  int64_t x_bytes() const { return XBytes(spec_); }
  int64_t sum_bytes() const { return SumBytes(spec_); }
  int64_t choice_bytes() const { return ChoiceBytes(spec_); }
  uint16_t* x() const { return reinterpret_cast<uint16_t*>(x_.data()); }
  model::ExpertChoice* choices() const { return reinterpret_cast<model::ExpertChoice*>(choices_.data()); }
  float* sums() const { return reinterpret_cast<float*>(sums_.data()); }

  // Every rank's rows, of so many bytes each.
  absl::Status Gather(const Call& call, uint8_t* rows, int64_t row_bytes) {
    std::vector<ReceiveBlock> blocks;
    for (int rank = 0; rank < run_.ranks(); ++rank) {
      blocks.push_back({rows + run_.split->FirstRow(rank) * row_bytes, run_.split->Rows(rank) * row_bytes});
    }
    const ReceiveBlock own = blocks[static_cast<size_t>(run_.rank)];
    return communicator_.AllGather(call, {own.data, own.bytes}, blocks);
  }

  const weights::ModelSpec& spec_;
  device::Device& device_;
  collective::Communicator& communicator_;
  engine::RankKernels& kernels_;
  RankRun run_;
  // Rows in the order of ranks.
  device::Memory x_;        // BF16 [all_rows, hidden]
  device::Memory choices_;  // [all_rows, experts_per_token]
  device::Memory sums_;     // F32 [all_rows, hidden]: of this rank's experts
  device::Memory parts_;    // F32 [ranks - 1, own_rows, hidden]: of the other ranks' experts
};

}  // namespace

int64_t SmallEpBytes(const weights::ModelSpec& spec, int64_t own_rows, int64_t all_rows, int ranks) {
  return all_rows * (XBytes(spec) + ChoiceBytes(spec) + SumBytes(spec)) + (ranks - 1) * own_rows * SumBytes(spec);
}

std::unique_ptr<ExpertExchange> NewSmallEp(const weights::ModelSpec& spec, device::Device& device,
                                           collective::Communicator& communicator, engine::RankKernels& kernels) {
  return std::make_unique<SmallEp>(spec, device, communicator, kernels);
}

}  // namespace moestro::prefill
