#include "common/collective/sim/sim_communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace moestro::collective {
namespace {

// The rendezvous of all ranks before an operation.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}

  // The arrival time of the last rank.
  absl::StatusOr<double> Attend(double seconds, const std::atomic<bool>& stopped) {
    MutexLock lock(mutex_);
    latest_ = std::max(latest_, seconds);
    if (++present_ == ranks_) {
      begin_ = std::exchange(latest_, 0);
      present_ = 0;
      ++number_;
      changed_.notify_all();
    } else {
      const auto over = [this, number = number_]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return number_ != number || !failure_.ok(); };
      while (!changed_.wait_for(lock, kPoll, over)) {
        if (stopped) return absl::CancelledError("the run has been given up");
      }
    }
    if (!failure_.ok()) return failure_;
    return begin_;  // the next meeting cannot begin without this rank, so begin_ is still this one's
  }

  void Fail(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = status;
    changed_.notify_all();
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{10};

  const int ranks_;
  Mutex mutex_;
  Condition changed_;
  int present_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;   // meetings so far
  double latest_ ABSL_GUARDED_BY(mutex_) = 0;     // of the ranks present
  double begin_ ABSL_GUARDED_BY(mutex_) = 0;      // of the last meeting
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of the group
};

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(int rank, int ranks, const SimLink& link, std::shared_ptr<Meeting> meeting, device::Device& device)
      : Communicator(rank, ranks, device), link_(link), meeting_(std::move(meeting)) {}

  void Fail(const absl::Status& status) override { meeting_->Fail(status); }
  void Beat() override {}

 private:
  absl::Status Exchange(Operation, const Call& call, std::span<const Send> sends,
                        std::span<const Receive> receives) override {
    MOE_ASSIGN_OR_RETURN(const double begin, meeting_->Attend(device().Now(), call.stopped));
    int64_t sent = 0;
    int64_t received = 0;
    for (const Send& send : sends) sent += send.block.bytes;
    for (const Receive& receive : receives) received += receive.block.bytes;
    const double seconds = static_cast<double>(std::max(sent, received)) / link_.bytes_per_second;
    device().AdvanceTo(begin + (sends.empty() ? 0 : link_.seconds + seconds));
    return absl::OkStatus();
  }

  const SimLink link_;
  const std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> NewSimGroup(const SimLink& link, std::span<device::Device* const> devices) {
  const auto ranks = static_cast<int>(devices.size());
  const auto meeting = std::make_shared<Meeting>(ranks);
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < ranks; ++rank) {
    group.push_back(std::make_unique<SimCommunicator>(rank, ranks, link, meeting, *devices[rank]));
  }
  return group;
}

}  // namespace moestro::collective
