#include <algorithm>
#include <numeric>
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

// Memory that grows to what is asked for and is kept.
class Growing {
 public:
  absl::Status Reserve(device::Device& device, int64_t bytes, const char* what) {
    if (bytes <= memory_.bytes()) return absl::OkStatus();
    memory_ = device::Memory();
    MOE_ASSIGN_OR_RETURN(memory_, device.Allocate(bytes, what));
    return absl::OkStatus();
  }
  void Free() { memory_ = device::Memory(); }
  uint8_t* data() const { return memory_.data(); }

 private:
  device::Memory memory_;
};

constexpr int64_t kIdBytes = 4;
constexpr int64_t kCountBytes = 8;

class StandardEp final : public ExpertExchange {
 public:
  StandardEp(const weights::ModelSpec& spec, device::Device& device, collective::Communicator& communicator,
             engine::RankKernels& kernels, Exchanges& exchanges)
      : spec_(spec), device_(device), communicator_(communicator), kernels_(kernels), exchanges_(exchanges) {}

  absl::Status Begin(const RankRun& run) override {
    run_ = run;
    const auto ranks = static_cast<int64_t>(run.ranks());
    MOE_ASSIGN_OR_RETURN(x_, device_.Allocate(run.own_rows() * x_bytes(), "the rank's tokens"));
    MOE_ASSIGN_OR_RETURN(choices_, device_.Allocate(run.own_rows() * choice_bytes(), "the rank's choices"));
    MOE_ASSIGN_OR_RETURN(counts_, device_.Allocate(2 * ranks * kCountBytes, "counts of pairs"));
    MOE_ASSIGN_OR_RETURN(totals_, device_.Allocate(run.own_rows() * sum_bytes(), "sums of the rank's rows"));
    MOE_ASSIGN_OR_RETURN(ready_, device_.NewEvent());
    return absl::OkStatus();
  }

  void End() override {
    for (device::Memory* memory : {&x_, &choices_, &counts_, &totals_}) *memory = device::Memory();
    ready_.reset();
    for (Growing* memory : {&sent_x_, &sent_ids_, &returned_, &received_x_, &received_ids_, &sums_}) memory->Free();
  }

  absl::Status Route(const engine::StagedModule& router, const RankStep& step) override {
    MOE_RETURN_IF_ERROR(step.launch(kernels_.Route(router, reinterpret_cast<uint16_t*>(x_.data()), choices())));
    combine_.reset();
    return step.launch(kernels_.CountPairs(choices()));
  }

  // All pairs come at once: nothing is computed meanwhile.
  absl::Status Dispatch(const RankStep& step) override {
    MOE_RETURN_IF_ERROR(step.stream.Synchronize());
    MOE_ASSIGN_OR_RETURN(const engine::PairLists pairs, kernels_.Pairs());
    sent_ = pairs.counts;
    const int64_t counts =
        exchanges_.Start({"counts", step.layer, nullptr, [this](const Call& call) { return ExchangeCounts(call); }});
    MOE_RETURN_IF_ERROR(exchanges_.WaitFor(counts, step.stream, step.stopped));
    const int64_t out = pairs.total;
    const int64_t in = std::accumulate(received_.begin(), received_.end(), int64_t{0});
    MOE_RETURN_IF_ERROR(sent_x_.Reserve(device_, out * x_bytes(), "rows for experts"));
    MOE_RETURN_IF_ERROR(sent_ids_.Reserve(device_, out * kIdBytes, "experts of rows"));
    MOE_RETURN_IF_ERROR(returned_.Reserve(device_, out * sum_bytes(), "results of experts"));
    MOE_RETURN_IF_ERROR(received_x_.Reserve(device_, in * x_bytes(), "rows of all ranks"));
    MOE_RETURN_IF_ERROR(received_ids_.Reserve(device_, in * kIdBytes, "experts of all ranks' rows"));
    MOE_RETURN_IF_ERROR(sums_.Reserve(device_, in * sum_bytes(), "results for all ranks"));
    MOE_RETURN_IF_ERROR(step.launch(kernels_.Pack(reinterpret_cast<const uint16_t*>(x_.data()), choices(),
                                                  reinterpret_cast<uint16_t*>(sent_x_.data()),
                                                  reinterpret_cast<int32_t*>(sent_ids_.data()))));
    MOE_RETURN_IF_ERROR(step.stream.Record(*ready_));
    MOE_RETURN_IF_ERROR(KeepOwn(step, sent_ids_.data(), sent_, received_ids_.data(), received_, kIdBytes));
    MOE_RETURN_IF_ERROR(KeepOwn(step, sent_x_.data(), sent_, received_x_.data(), received_, x_bytes()));
    MOE_RETURN_IF_ERROR(step.launch(kernels_.Clear({sums(), static_cast<size_t>(in * spec_.hidden_size)})));
    const int64_t dispatch = exchanges_.Start(
        {"dispatch", step.layer, ready_.get(), [this](const Call& call) -> absl::Status {
           MOE_RETURN_IF_ERROR(Exchange(call, sent_ids_.data(), sent_, received_ids_.data(), received_, kIdBytes));
           return Exchange(call, sent_x_.data(), sent_, received_x_.data(), received_, x_bytes());
         }});
    MOE_RETURN_IF_ERROR(exchanges_.WaitFor(dispatch, step.stream, step.stopped));
    return step.launch(
        kernels_.SortPairs({reinterpret_cast<const int32_t*>(received_ids_.data()), static_cast<size_t>(in)}));
  }

  // Pairs of all ranks go through an expert together.
  absl::Status Experts(std::span<const engine::StagedModule> experts, engine::WhoseRows rows,
                       const RankStep& step) override {
    if (rows == engine::WhoseRows::kOwn) return absl::OkStatus();
    MOE_RETURN_IF_ERROR(
        step.launch(kernels_.Experts(experts, reinterpret_cast<const uint16_t*>(received_x_.data()), sums())));
    const bool are_last = experts.back().module->index + 1 == run_.experts(spec_).end;
    return are_last ? StartCombine(step) : absl::OkStatus();
  }

  absl::Status Combine(const engine::StagedModule& router, const RankStep& step) override {
    if (!combine_) MOE_RETURN_IF_ERROR(StartCombine(step));  // the rank has no experts
    MOE_RETURN_IF_ERROR(exchanges_.WaitFor(*combine_, step.stream, step.stopped));
    auto* const totals = reinterpret_cast<float*>(totals_.data());
    MOE_RETURN_IF_ERROR(
        step.launch(kernels_.CombinePairs(choices(), reinterpret_cast<const float*>(returned_.data()), totals)));
    return step.launch(kernels_.AddExperts(router, {totals}));
  }

 private:
  int64_t x_bytes() const { return XBytes(spec_); }
  int64_t sum_bytes() const { return SumBytes(spec_); }
  int64_t choice_bytes() const { return ChoiceBytes(spec_); }
  model::ExpertChoice* choices() const { return reinterpret_cast<model::ExpertChoice*>(choices_.data()); }
  float* sums() const { return reinterpret_cast<float*>(sums_.data()); }

  // Sends back what the experts have made of all pairs.
  absl::Status StartCombine(const RankStep& step) {
    MOE_RETURN_IF_ERROR(step.stream.Record(*ready_));
    MOE_RETURN_IF_ERROR(KeepOwn(step, sums_.data(), received_, returned_.data(), sent_, sum_bytes()));
    combine_ = exchanges_.Start({"combine", step.layer, ready_.get(), [this](const Call& call) {
                                   return Exchange(call, sums_.data(), received_, returned_.data(), sent_, sum_bytes());
                                 }});
    return absl::OkStatus();
  }

  // received_[r]: how many pairs rank r has for this one.
  absl::Status ExchangeCounts(const Call& call) {
    const auto ranks = static_cast<int64_t>(run_.ranks());
    received_ = sent_;  // what a simulated exchange leaves: shares of rows are shares of experts, to and fro
    const auto bytes = ranks * kCountBytes;
    uint8_t* const counts = counts_.data();
    const auto* const sent = reinterpret_cast<const uint8_t*>(sent_.data());
    const int64_t own = run_.rank * kCountBytes;
    MOE_RETURN_IF_ERROR(call.stream.CopyToDevice(counts, sent, bytes));
    MOE_RETURN_IF_ERROR(call.stream.CopyToDevice(counts + bytes + own, sent + own, kCountBytes));
    const std::vector<int64_t> ones(static_cast<size_t>(ranks), 1);
    MOE_RETURN_IF_ERROR(Exchange(call, counts, ones, counts + bytes, ones, kCountBytes));
    MOE_RETURN_IF_ERROR(call.stream.CopyToHost(reinterpret_cast<uint8_t*>(received_.data()), counts + bytes, bytes));
    return call.stream.Synchronize();
  }

  // Rows of so many bytes: sends[r] of them for rank r, one behind the other, and as many receives[r].
  struct Blocks {
    std::vector<SendBlock> send;
    std::vector<ReceiveBlock> receive;
  };
  Blocks BlocksOf(const uint8_t* from, const std::vector<int64_t>& sends, uint8_t* to,
                  const std::vector<int64_t>& receives, int64_t row_bytes) const {
    Blocks blocks;
    for (int rank = 0; rank < run_.ranks(); ++rank) {
      blocks.send.push_back({from, sends[static_cast<size_t>(rank)] * row_bytes});
      blocks.receive.push_back({to, receives[static_cast<size_t>(rank)] * row_bytes});
      from += blocks.send.back().bytes;
      to += blocks.receive.back().bytes;
    }
    return blocks;
  }
  absl::Status Exchange(const Call& call, const uint8_t* from, const std::vector<int64_t>& sends, uint8_t* to,
                        const std::vector<int64_t>& receives, int64_t row_bytes) {
    const Blocks blocks = BlocksOf(from, sends, to, receives, row_bytes);
    return communicator_.AllToAll(call, blocks.send, blocks.receive);
  }
  // The rank's own rows of the same.
  absl::Status KeepOwn(const RankStep& step, const uint8_t* from, const std::vector<int64_t>& sends, uint8_t* to,
                       const std::vector<int64_t>& receives, int64_t row_bytes) {
    const Blocks blocks = BlocksOf(from, sends, to, receives, row_bytes);
    const auto self = static_cast<size_t>(run_.rank);
    return step.launch(kernels_.Copy(blocks.receive[self].data, blocks.send[self].data, blocks.send[self].bytes));
  }

  const weights::ModelSpec& spec_;
  device::Device& device_;
  collective::Communicator& communicator_;
  engine::RankKernels& kernels_;
  Exchanges& exchanges_;
  RankRun run_;
  device::Memory x_;                      // BF16 [own_rows, hidden]
  device::Memory choices_;                // [own_rows, experts_per_token]
  device::Memory counts_;                 // [2, ranks]: sent, received
  device::Memory totals_;                 // F32 [own_rows, hidden]
  std::unique_ptr<device::Event> ready_;  // what is exchanged next
  std::optional<int64_t> combine_;        // of the layer: of Exchanges
  // Pairs of this rank's rows by the experts' rank, and of this rank's experts by the rows' rank.
  std::vector<int64_t> sent_;
  std::vector<int64_t> received_;
  Growing sent_x_;        // BF16 [sent, hidden]
  Growing sent_ids_;      // [sent]
  Growing returned_;      // F32 [sent, hidden]
  Growing received_x_;    // BF16 [received, hidden]
  Growing received_ids_;  // [received]
  Growing sums_;          // F32 [received, hidden]
};

}  // namespace

int64_t StandardEpBytes(const weights::ModelSpec& spec, const RankRun& run) {
  const int64_t own_rows = run.own_rows();
  const ProportionalParts& parts = run.split->parts();
  const int64_t pairs = (own_rows + run.all_rows() * parts.share(run.rank) / parts.total()) * spec.experts_per_token;
  return own_rows * (XBytes(spec) + ChoiceBytes(spec) + SumBytes(spec)) +
         pairs * (XBytes(spec) + kIdBytes + SumBytes(spec)) * 3 / 2;
}

std::unique_ptr<ExpertExchange> NewStandardEp(const weights::ModelSpec& spec, device::Device& device,
                                              collective::Communicator& communicator, engine::RankKernels& kernels,
                                              Exchanges& exchanges) {
  return std::make_unique<StandardEp>(spec, device, communicator, kernels, exchanges);
}

}  // namespace moestro::prefill
