#include "services/decode/decode_loop.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::decode {
namespace {

// Pages drain, and a device comes back, when another process releases them. No message announces it. The process does
// so within one layer of its model. Nor does a message announce that a caller has gone.
constexpr std::chrono::milliseconds kDrainPoll(1);

// Logits of sequences that wait for their masks. As many as have room here take no place in the batch from others.
constexpr size_t kWaitingLogitsBytes = size_t{128} << 20;

void InsertByAge(Batch& batch, std::shared_ptr<Sequence> sequence) {
  const auto age = [](const std::shared_ptr<Sequence>& each) { return each->lease->age(); };
  const auto place = std::ranges::upper_bound(batch, age(sequence), {}, age);
  batch.insert(place, std::move(sequence));
}

}  // namespace

DecodeLoop::DecodeLoop(ForwardPass& forward, kv::KvPool& pool, LeaseTable& leases, DecodeMetrics& metrics,
                       const Options& options)
    : pool_(pool),
      leases_(leases),
      metrics_(metrics),
      spec_(forward.spec()),
      max_batch_(static_cast<size_t>(options.max_batch)),
      most_without_place_(kWaitingLogitsBytes / (sizeof(float) * static_cast<size_t>(spec_.token_count))),
      lent_device_(options.lent_device),
      cores_(options.cores),
      device_patience_(options.device_patience),
      step_runner_(forward, pool, leases, metrics, *heartbeat_, options.cores, options.chunks, options.trace, [this] {
        MutexLock lock(mutex_);
        changed_.notify_all();
      }) {
  MOE_CHECK(options.max_batch >= 1 && options.chunks.max_rows >= 1 && options.max_rows() <= forward.max_rows());
  thread_ = std::thread([this] { Loop(); });
}

DecodeLoop::~DecodeLoop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

absl::Status DecodeLoop::Validate(const Lease& lease, const Continuation& next, size_t known) const {
  MOE_RETURN_IF_ERROR(model::ValidateSampling(next.sampling, spec_.token_count));
  if (next.index > known) {
    return absl::InvalidArgumentError("index " + std::to_string(next.index) + " is more than the request's " +
                                      std::to_string(known) + " tokens");
  }
  const auto tokens = static_cast<int64_t>(lease.tokens.size());
  if (next.max_tokens < 1 || next.max_tokens > lease.limit - tokens) {
    return absl::InvalidArgumentError("max_tokens " + std::to_string(next.max_tokens) + " does not fit the " +
                                      std::to_string(lease.limit - tokens) + " that were reserved");
  }
  return absl::OkStatus();
}

Continuation DecodeLoop::WithinPool(const Lease& lease, const Continuation& next) const {
  const int64_t pool_tokens = pool_.most_tokens();
  Continuation bounded = next;
  bounded.max_tokens = std::min(next.max_tokens, pool_tokens - static_cast<int64_t>(lease.tokens.size()));
  return bounded;
}

absl::Status DecodeLoop::ValidateToken(int32_t id) const {
  if (id >= 0 && id < spec_.token_count) return absl::OkStatus();
  return absl::InvalidArgumentError("token " + std::to_string(id) + " is not in the vocabulary");
}

absl::StatusOr<std::shared_ptr<TokenStream>> DecodeLoop::Start(std::shared_ptr<Lease> lease, const FirstToken& first,
                                                               const Continuation& next) {
  MOE_RETURN_IF_ERROR(Validate(*lease, next, lease->tokens.size() + 1));
  MOE_RETURN_IF_ERROR(ValidateToken(first.id));
  // The lock keeps the lease from being preempted between the checks and Enqueue.
  MutexLock lock(mutex_);
  if (stopping_) return absl::UnavailableError("decode is shutting down");
  MOE_RETURN_IF_ERROR(leases_.Check(*lease));
  const int64_t valid = pool_.ValidTokens(lease->kv);
  if (first.position != static_cast<int64_t>(lease->tokens.size()) || first.position != valid) {
    return absl::InvalidArgumentError("position " + std::to_string(first.position) + " does not follow the lease's " +
                                      std::to_string(lease->tokens.size()) + " tokens, of which " +
                                      std::to_string(valid) + " are valid");
  }
  leases_.Cache(*lease);
  const Continuation bounded = WithinPool(*lease, next);
  lease->tokens.push_back(first.id);
  return Enqueue(std::make_shared<Sequence>(Sequence{.lease = std::move(lease), .next = bounded, .valid = valid}));
}

absl::StatusOr<std::shared_ptr<TokenStream>> DecodeLoop::Prompt(std::shared_ptr<Lease> lease,
                                                                const Continuation& next) {
  MOE_RETURN_IF_ERROR(Validate(*lease, next, lease->tokens.size()));
  for (const int32_t id : lease->tokens) MOE_RETURN_IF_ERROR(ValidateToken(id));
  const auto tokens = static_cast<int64_t>(lease->tokens.size());
  if (tokens > spec_.max_position_embeddings) {
    return absl::InvalidArgumentError("the prompt has " + std::to_string(tokens) + " tokens, the model's context " +
                                      std::to_string(spec_.max_position_embeddings));
  }
  MutexLock lock(mutex_);
  if (stopping_) return absl::UnavailableError("decode is shutting down");
  MOE_RETURN_IF_ERROR(leases_.Check(*lease));
  // The last token is always computed: its logits give the next token.
  const int64_t valid = std::min(pool_.ValidTokens(lease->kv), tokens - 1);
  const Continuation bounded = WithinPool(*lease, next);
  return Enqueue(std::make_shared<Sequence>(
      Sequence{.lease = std::move(lease), .next = bounded, .valid = valid, .prompt_tokens = tokens}));
}

std::shared_ptr<TokenStream> DecodeLoop::Enqueue(std::shared_ptr<Sequence> sequence) {
  std::shared_ptr<TokenStream> stream = sequence->stream;
  InsertByAge(waiting_, std::move(sequence));
  UpdateGauges();
  changed_.notify_all();
  return stream;
}

void DecodeLoop::Remove(const std::shared_ptr<TokenStream>& stream) {
  stream->Cancel();
  MutexLock lock(mutex_);
  const auto is_stream = [&](const auto& sequence) { return sequence->stream == stream; };
  if (const auto found = std::ranges::find_if(waiting_, is_stream); found != waiting_.end()) {
    leases_.Release(*(*found)->lease);
    waiting_.erase(found);
    UpdateGauges();
  }
  changed_.notify_all();
  while (std::ranges::any_of(running_, is_stream)) changed_.wait(lock);
}

absl::Status DecodeLoop::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void DecodeLoop::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    if (running_.empty() && waiting_.empty()) {
      ReturnDevice();
      if (cores_ != nullptr) cores_->End();
      heartbeat_->Rest();
    }
    while (!stopping_ && running_.empty() && waiting_.empty()) changed_.wait(lock);
    if (stopping_) break;
    heartbeat_->Beat();
    if (cores_ != nullptr) cores_->Begin();
    lock.unlock();
    step_runner_.TakeMasks(running_);
    lock.lock();
    DropEnded();
    if (!ClaimDevice()) {
      changed_.wait_for(lock, kDrainPoll);
      continue;
    }
    Admit();
    const Batch batch = MakeRoom();
    UpdateGauges();
    if (batch.empty()) {
      if (!running_.empty()) changed_.wait_for(lock, kDrainPoll);
      continue;
    }
    lock.unlock();
    NotePlaces(batch);
    absl::Status status = step_runner_.Run(batch);
    lock.lock();
    if (status.ok()) continue;
    failure_ = std::move(status);
    stopping_ = true;
  }
  if (cores_ != nullptr) cores_->End();
  heartbeat_->Rest();
  const absl::Status end = failure_.ok() ? absl::UnavailableError("decode is shutting down") : failure_;
  for (const Batch* batch : {&waiting_, &running_}) {
    for (const auto& sequence : *batch) {
      if (!sequence->ended) sequence->End(leases_, end);
    }
  }
  waiting_.clear();
  running_.clear();
  changed_.notify_all();
}

void DecodeLoop::DropEnded() {
  const size_t dropped = std::erase_if(running_, [&](const auto& sequence) {
    if (!sequence->ended && !sequence->stream->cancelled()) return false;
    leases_.Release(*sequence->lease);
    return true;
  });
  if (dropped > 0) changed_.notify_all();
}

// True if the loop may use the device for the next step.
bool DecodeLoop::ClaimDevice() {
  if (lent_device_ == nullptr || has_device_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (!claims_since_) claims_since_ = now;
  has_device_ = lent_device_->Claim();
  if (!has_device_ && now - *claims_since_ >= device_patience_) {
    LogWarning("the borrower does not return the device; both now use it");
    has_device_ = true;
  }
  if (!has_device_) return false;
  metrics_.device_wait_seconds.Increment(std::chrono::duration<double>(now - *claims_since_).count());
  return true;
}

void DecodeLoop::ReturnDevice() {
  if (lent_device_ == nullptr) return;
  lent_device_->Return();
  has_device_ = false;
  claims_since_.reset();
}

void DecodeLoop::Admit() {
  const auto waiting = static_cast<size_t>(
      std::ranges::count_if(running_, [](const auto& sequence) { return sequence->waits_for_mask(); }));
  const size_t without_place = std::min(waiting, most_without_place_);
  while (running_.size() - without_place < max_batch_ && !waiting_.empty()) {
    InsertByAge(running_, std::move(waiting_.front()));
    waiting_.erase(waiting_.begin());
  }
}

// Returns at most max_batch sequences, which have pages for all their next rows; the others skip this step. Goes from
// the oldest to the youngest, and the table takes pages from the youngest, so no sequence loses pages after it was
// selected.
Batch DecodeLoop::MakeRoom() {
  Batch batch;
  for (const auto& sequence : running_) {
    if (batch.size() == max_batch_) break;
    if (sequence->ended || sequence->waits_for_mask()) continue;
    const LeaseTable::Room room = leases_.MakeRoom(sequence->lease);
    for (const auto& preempted : room.preempted) EndPreempted(*preempted);
    if (room.at_end) sequence->End(leases_, FinishReason::kLength);
    if (room.made) batch.push_back(sequence);
  }
  return batch;
}

void DecodeLoop::NotePlaces(const Batch& batch) {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& sequence : batch) {
    if (!sequence->stream->waited()) sequence->stream->NotePlace(now - sequence->arrived);
  }
}

// A lease without a sequence learns of it when it is started.
void DecodeLoop::EndPreempted(const Lease& lease) {
  const auto is_lease = [&](const auto& sequence) { return sequence->lease.get() == &lease; };
  if (const auto found = std::ranges::find_if(running_, is_lease); found != running_.end()) {
    (*found)->End(leases_, PreemptedError());
  }
  if (const auto found = std::ranges::find_if(waiting_, is_lease); found != waiting_.end()) {
    (*found)->End(leases_, PreemptedError());
    waiting_.erase(found);
  }
}

void DecodeLoop::UpdateGauges() {
  metrics_.waiting.Set(static_cast<double>(waiting_.size()));
  metrics_.batch_size.Set(static_cast<double>(running_.size()));
}

}  // namespace moestro::decode
