#include "common/collective/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro::collective {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

constexpr double kPollSeconds = 50e-6;

absl::Status ToStatus(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", ncclGetErrorString(result)));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> members, device::Device& device, const SharedOptions& options)
      : Communicator(members->rank(), members->ranks(), device),
        members_(std::move(members)),
        clock_(*options.clock),
        timeout_(options.timeout_seconds) {}

  ~NcclCommunicator() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);  // nobody needs transfers in flight
  }

  absl::Status Connect(const NcclId& id) {
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking call that waits for a dead rank would never return
    MOE_RETURN_IF_ERROR(
        ToStatus(ncclCommInitRankConfig(&comm_, ranks(), unique, rank(), &config), "ncclCommInitRankConfig"));
    const std::atomic<bool> never = false;
    return Poll(never, [] { return true; });
  }

  void Fail(const absl::Status& status) override { members_->Fail(status); }
  int failed_rank() const override { return members_->failed_rank(); }
  void Beat() override { members_->Beat(); }

 private:
  absl::Status Exchange(Operation, const Call& call, std::span<const Send> sends,
                        std::span<const Receive> receives) override {
    // All ranks have arrived, or the operation fails here. From now on, only work on the devices can delay it.
    MOE_RETURN_IF_ERROR(members_->Barrier(call));
    cudaStream_t stream = nullptr;
    MOE_RETURN_IF_ERROR(call.stream.Launch({.name = "nccl", .cost = {}, .run = [&](void* native) {
                                              stream = static_cast<cudaStream_t>(native);
                                              return Enqueue(sends, receives, stream);
                                            }}));
    const absl::Status status = Poll(call.stopped, [&] { return cudaStreamQuery(stream) != cudaErrorNotReady; });
    if (!status.ok()) {
      Fail(status);
      ncclCommAbort(std::exchange(comm_, nullptr));  // releases the stream from a transfer without a peer
      return status;
    }
    return call.stream.Synchronize();
  }

  absl::Status Enqueue(std::span<const Send> sends, std::span<const Receive> receives, cudaStream_t stream) {
    if (comm_ == nullptr) return absl::UnavailableError("the group has failed");
    MOE_RETURN_IF_ERROR(ToStatus(ncclGroupStart(), "ncclGroupStart"));
    ncclResult_t result = ncclSuccess;
    const auto add = [&](ncclResult_t next) {
      if (result == ncclSuccess || result == ncclInProgress) result = next;
    };
    for (const Send& s : sends) {
      if (s.block.bytes > 0) add(ncclSend(s.block.data, s.block.bytes, ncclUint8, s.peer, comm_, stream));
    }
    for (const Receive& r : receives) {
      if (r.block.bytes > 0) add(ncclRecv(r.block.data, r.block.bytes, ncclUint8, r.peer, comm_, stream));
    }
    add(ncclGroupEnd());
    return ToStatus(result, "ncclSend and ncclRecv");
  }

  // Waits until NCCL has nothing in progress and `done`.
  template <typename Done>
  absl::Status Poll(const std::atomic<bool>& stopped, Done done) {
    const double begin = clock_.Now();
    while (true) {
      ncclResult_t state = ncclSuccess;
      MOE_RETURN_IF_ERROR(ToStatus(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
      MOE_RETURN_IF_ERROR(ToStatus(state, "NCCL"));
      if (state == ncclSuccess && done()) return absl::OkStatus();
      if (stopped) return absl::CancelledError("the run has been given up");
      const double now = clock_.Now();
      if (now - begin > timeout_) return absl::DeadlineExceededError("NCCL does not finish");
      clock_.SleepUntil(now + kPollSeconds);
    }
  }

  const std::unique_ptr<Communicator> members_;
  const device::Clock& clock_;
  const double timeout_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

absl::StatusOr<NcclId> NewNcclId() {
  ncclUniqueId unique;
  MOE_RETURN_IF_ERROR(ToStatus(ncclGetUniqueId(&unique), "ncclGetUniqueId"));
  NcclId id;
  std::memcpy(id.data(), &unique, sizeof(unique));
  return id;
}

absl::StatusOr<std::unique_ptr<Communicator>> JoinNccl(const NcclId& id, const Region& region, int rank,
                                                       device::Device& device, const SharedOptions& options) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> members, JoinRegion(region, rank, device, options));
  auto communicator = std::make_unique<NcclCommunicator>(std::move(members), device, options);
  MOE_RETURN_IF_ERROR(communicator->Connect(id));
  return communicator;
}

}  // namespace moestro::collective
