#include <optional>
#include <utility>
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
          engine::RankKernels& kernels, Exchanges& exchanges)
      : spec_(spec), device_(device), communicator_(communicator), kernels_(kernels), exchanges_(exchanges) {}

  absl::Status Begin(const RankRun& run) override {
    run_ = run;
    MOE_ASSIGN_OR_RETURN(x_, device_.Allocate(run.all_rows() * x_bytes(), "all ranks' tokens"));
    MOE_ASSIGN_OR_RETURN(choices_, device_.Allocate(run.all_rows() * choice_bytes(), "all ranks' choices"));
    MOE_ASSIGN_OR_RETURN(sums_, device_.Allocate(run.all_rows() * sum_bytes(), "sums for all ranks"));
    const int64_t parts = (run.ranks() - 1) * run.own_rows();
    MOE_ASSIGN_OR_RETURN(parts_, device_.Allocate(parts * sum_bytes(), "sums of all ranks"));
    MOE_ASSIGN_OR_RETURN(routed_, device_.NewEvent());
    MOE_ASSIGN_OR_RETURN(computed_, device_.NewEvent());
    return absl::OkStatus();
  }

  void End() override {
    for (device::Memory* memory : {&x_, &choices_, &sums_, &parts_}) *memory = device::Memory();
    routed_.reset();
    computed_.reset();
  }

  absl::Status Route(const engine::StagedModule& router, const RankStep& step) override {
    const int64_t first = OwnRows().begin;
    MOE_RETURN_IF_ERROR(step.launch(
        kernels_.Route(router, x() + first * spec_.hidden_size, choices() + first * spec_.experts_per_token)));
    MOE_RETURN_IF_ERROR(step.stream.Record(*routed_));
    dispatch_ = exchanges_.Start({"dispatch", step.layer, routed_.get(), [this](const Call& call) -> absl::Status {
                                    MOE_RETURN_IF_ERROR(Gather(call, x_.data(), x_bytes()));
                                    return Gather(call, choices_.data(), choice_bytes());
                                  }});
    sorted_ = {};
    combine_.reset();
    return step.launch(kernels_.Clear({sums(), static_cast<size_t>(run_.all_rows() * spec_.hidden_size)}));
  }

  absl::Status Dispatch(const RankStep& step) override {
    return exchanges_.WaitFor(dispatch_, step.stream, step.stopped);
  }

  absl::Status Experts(std::span<const engine::StagedModule> experts, engine::WhoseRows rows,
                       const RankStep& step) override {
    const IndexRange own = OwnRows(), all{0, run_.all_rows()};
    if (rows == engine::WhoseRows::kAll) return ExpertsOf(all, experts, step);
    if (rows == engine::WhoseRows::kOwn) return ExpertsOf(own, experts, step);
    MOE_RETURN_IF_ERROR(ExpertsOf({0, own.begin}, experts, step));
    MOE_RETURN_IF_ERROR(ExpertsOf({own.end, all.end}, experts, step));
    const bool are_last = experts.back().module->index + 1 == run_.experts(spec_).end;
    return are_last ? StartCombine(step) : absl::OkStatus();
  }

  absl::Status Combine(const engine::StagedModule& router, const RankStep& step) override {
    if (!combine_) MOE_RETURN_IF_ERROR(StartCombine(step));  // the rank has no experts
    MOE_RETURN_IF_ERROR(exchanges_.WaitFor(*combine_, step.stream, step.stopped));
    std::vector<float*> parts;  // of the rank's rows, by rank
    for (int rank = 0; rank < run_.ranks(); ++rank) parts.push_back(reinterpret_cast<float*>(PartOf(rank)));
    return step.launch(kernels_.AddExperts(router, std::move(parts)));
  }

 private:
  int64_t x_bytes() const { return XBytes(spec_); }
  int64_t sum_bytes() const { return SumBytes(spec_); }
  int64_t choice_bytes() const { return ChoiceBytes(spec_); }
  uint16_t* x() const { return reinterpret_cast<uint16_t*>(x_.data()); }
  model::ExpertChoice* choices() const { return reinterpret_cast<model::ExpertChoice*>(choices_.data()); }
  float* sums() const { return reinterpret_cast<float*>(sums_.data()); }

  // In the order of ranks.
  IndexRange OwnRows() const { return {run_.split->FirstRow(run_.rank), run_.split->FirstRow(run_.rank + 1)}; }

  // Where a rank's sums of this rank's rows are, or arrive.
  uint8_t* PartOf(int rank) const {
    if (rank == run_.rank) return sums_.data() + OwnRows().begin * sum_bytes();
    return parts_.data() + (rank < run_.rank ? rank : rank - 1) * run_.own_rows() * sum_bytes();
  }

  // What the experts make of these rows.
  absl::Status ExpertsOf(IndexRange rows, std::span<const engine::StagedModule> experts, const RankStep& step) {
    if (rows.size() == 0) return absl::OkStatus();
    if (rows != sorted_) {
      const int64_t chosen = spec_.experts_per_token;
      sorted_ = rows;
      MOE_RETURN_IF_ERROR(step.launch(
          kernels_.Sort({choices() + rows.begin * chosen, static_cast<size_t>(rows.size() * chosen)}, chosen)));
    }
    const int64_t first = rows.begin * spec_.hidden_size;
    return step.launch(kernels_.Experts(experts, x() + first, sums() + first));
  }

  // Sends what the experts have made of the others' rows.
  absl::Status StartCombine(const RankStep& step) {
    MOE_RETURN_IF_ERROR(step.stream.Record(*computed_));
    combine_ = exchanges_.Start({"combine", step.layer, computed_.get(), [this](const Call& call) {
                                   std::vector<SendBlock> to;
                                   std::vector<ReceiveBlock> from;
                                   for (int rank = 0; rank < run_.ranks(); ++rank) {
                                     to.push_back({sums_.data() + run_.split->FirstRow(rank) * sum_bytes(),
                                                   run_.split->Rows(rank) * sum_bytes()});
                                     from.push_back({PartOf(rank), run_.own_rows() * sum_bytes()});
                                   }
                                   return communicator_.AllToAll(call, to, from);
                                 }});
    return absl::OkStatus();
  }

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
  Exchanges& exchanges_;
  RankRun run_;
  // Rows in the order of ranks.
  device::Memory x_;                         // BF16 [all_rows, hidden]
  device::Memory choices_;                   // [all_rows, experts_per_token]
  device::Memory sums_;                      // F32 [all_rows, hidden]: of this rank's experts
  device::Memory parts_;                     // F32 [ranks - 1, own_rows, hidden]: of the other ranks' experts
  std::unique_ptr<device::Event> routed_;    // the rank's rows
  std::unique_ptr<device::Event> computed_;  // the others' rows, by all experts
  // Of the layer.
  int64_t dispatch_ = 0;  // of Exchanges
  std::optional<int64_t> combine_;
  IndexRange sorted_;  // the rows that the kernels have sorted last
};

}  // namespace

int64_t SmallEpBytes(const weights::ModelSpec& spec, const RankRun& run) {
  return run.all_rows() * (XBytes(spec) + ChoiceBytes(spec) + SumBytes(spec)) +
         (run.ranks() - 1) * run.own_rows() * SumBytes(spec);
}

std::unique_ptr<ExpertExchange> NewSmallEp(const weights::ModelSpec& spec, device::Device& device,
                                           collective::Communicator& communicator, engine::RankKernels& kernels,
                                           Exchanges& exchanges) {
  return std::make_unique<SmallEp>(spec, device, communicator, kernels, exchanges);
}

}  // namespace moestro::prefill
