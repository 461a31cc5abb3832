// Calls to one role on behalf of clients. Interprets how they end, and ends all of them when the role hangs.
#pragma once

#include <grpcpp/client_context.h>

#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/rpc/status.h"
#include "moestro/v1/decode.grpc.pb.h"
#include "moestro/v1/prefill.grpc.pb.h"
#include "services/router/request/peers.h"
#include "services/router/rpc/client_call.h"

namespace moestro::router {

// UNAVAILABLE whenever the role is gone, whatever code the transport reports. Otherwise the role's own code.
inline absl::Status PeerStatus(const grpc::Status& status, const char* peer) {
  const absl::Status result = FromGrpc(status, peer);
  return IsPeerGone(result) ? absl::UnavailableError(result.message()) : result;
}

// The call ended with OK but without its result: its process is shutting down.
inline absl::Status EndedEarly(const char* peer) {
  return absl::UnavailableError(std::string(peer) + ": the call ended before its result");
}

// The calls in flight to one role. Thread-safe.
class OpenCalls {
 public:
  // Ends the calls that are open now.
  void CutOff() {
    MutexLock lock(mutex_);
    for (Call* call : open_) call->CutOffLocked();
  }

  // One call on behalf of a client's call, whose deadline and cancellation it shares. Used by one thread.
  class Call {
   public:
    Call(OpenCalls& calls, const ClientCall& client)
        : calls_(calls), context_(client.NewContext()), watch_(client, [this] { context_->TryCancel(); }) {
      MutexLock lock(calls_.mutex_);
      calls_.open_.insert(this);
    }
    ~Call() {
      MutexLock lock(calls_.mutex_);
      calls_.open_.erase(this);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    grpc::ClientContext* context() { return context_.get(); }

    // The call's status: as PeerStatus, but UNAVAILABLE if the call was cut off.
    absl::Status Result(const grpc::Status& status, const char* peer) {
      MutexLock lock(calls_.mutex_);
      if (!cut_off_) return PeerStatus(status, peer);
      return absl::UnavailableError(
          absl::StrCat(peer, ": hangs: it has not been healthy for as long as requests wait"));
    }

   private:
    friend class OpenCalls;
    void CutOffLocked() {
      calls_.mutex_.AssertHeld();
      cut_off_ = true;
      context_->TryCancel();
    }

    OpenCalls& calls_;
    const std::unique_ptr<grpc::ClientContext> context_;
    const ClientCall::Watch watch_;
    bool cut_off_ ABSL_GUARDED_BY(calls_.mutex_) = false;
  };

 private:
  Mutex mutex_;
  std::set<Call*> open_ ABSL_GUARDED_BY(mutex_);
};

// Peers for one call of a client. All arguments must outlive the peer and its sessions.
std::unique_ptr<PrefillPeer> NewPrefillPeer(v1::PrefillService::Stub& stub, OpenCalls& calls, const ClientCall& call);
std::unique_ptr<DecodePeer> NewDecodePeer(v1::DecodeService::Stub& stub, OpenCalls& calls, const ClientCall& call);

}  // namespace moestro::router
