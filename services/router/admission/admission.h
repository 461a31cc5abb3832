// The line of requests that want KV pages, of bounded length. Thread-safe.
//
// Only the request at the head asks decode for pages, so a short request never overtakes a long one that has waited
// longer. Asking sends the whole prompt, so after a refusal a request asks again only when pages have come back.
//
// Order. The requests of a tenant (the holder of an API key) are served in the order of their arrival. Between tenants
// the line is fair by tokens: each has a virtual time, which grows by tokens / weight when one of its requests becomes
// the head. The next head is the first request of the tenant whose virtual time is least (start-time fair queueing). A
// request counts with its prompt and the first part of its answer, and with each further part when that begins. What it
// did not use is credited at its end. So a generous max_tokens costs nothing. A tenant that comes back begins at the
// virtual time of the last head, so that nobody saves up for a flood. With one tenant all this is: first come, first
// served.
//
// Seniority. A request becomes the head once, when it looks and it is its turn, and then gets its number, one more than
// the last head's. It keeps the number to its end. Decode takes pages from the highest number
// (services/decode/lease_table.h), and needs one order that never changes: then no two requests take pages from each
// other in turns, and the lowest number always finishes. Virtual times change, so they are no such order; the numbers
// are. They are fair, too: the line was, which gave them. A request that lost its pages goes before all that have no
// number yet, whoever its tenant is, as the lowest number first. So numbers reach decode in ascending order, apart from
// such returns. The head keeps its place until it has pages or leaves. So a large request is not overtaken for ever: a
// tenant waits for one head, and for those that virtual time puts before it.
//
// Places. Decode computes a few requests at once, and has a line of its own, in the order of these numbers. So fairness
// ends where a request gets pages. While the node has several tenants, the next head therefore waits until decode has a
// place for it, and the last place is for a tenant that has none: whoever comes next need not wait until a request of a
// busy tenant ends. Long prompts, which prefill computes, have as many places of their own, so that prefill works
// ahead.
//
// Waiting. A request sleeps until it may be its turn: whoever changes the order wakes the one that is next, and nobody
// else. Thousands that wait cost nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "services/router/access/tenant.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

class AdmissionQueue {
 public:
  // `limit`: requests that may wait.
  explicit AdmissionQueue(size_t limit) : limit_(limit) {}

  enum class Kind { kShort = 0, kLong = 1 };  // by who computes the prompt: decode, prefill

  // A request, from its arrival to its end. Used by one thread; must not outlive the queue.
  class Request {
   public:
    // Arrives now. `tokens`: what it counts with until it has used more, > 0.
    Request(AdmissionQueue& queue, std::shared_ptr<Tenant> tenant, uint32_t tokens, Kind kind);
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // A place in the line. Its destructor leaves the line. Movable; must not outlive the request.
    class Place {
     public:
      Place(Place&& other) noexcept;
      Place& operator=(Place&&) = delete;
      ~Place();
      // Whether it is this request's turn to ask for pages. Then it is the head.
      bool IsFirst() const;
      // Waits until that may have become true, or, for the head, until pages have come back; at most `duration`.
      void Wait(RequestClock& clock, RequestClock::Duration duration) const;
      // Ends the Wait that is under way, or else the next one. Thread-safe.
      void Wake() const;

     private:
      friend class Request;
      explicit Place(Request& request) : request_(&request) {}
      Request* request_;
    };
    // A request that has a number goes to the front, and no limit applies: a refusal would discard its work.
    // RESOURCE_EXHAUSTED with a retry-after: the line is full, or its tenant's part of it. REQUIRES: it has no place.
    absl::StatusOr<Place> LineUp();

    // Its number. REQUIRES: it was first.
    uint64_t seniority() const;

    // Prompt and generated tokens; initially 0. Never falls. REQUIRES: it was first.
    void SetUsed(uint32_t tokens);

   private:
    friend class AdmissionQueue;
    AdmissionQueue& queue_;
    const std::shared_ptr<Tenant> tenant_;
    uint32_t tokens_;  // that its line has counted
    const Kind kind_;
    const uint64_t arrival_;
    uint32_t used_ = 0;
    uint64_t seniority_ ABSL_GUARDED_BY(queue_.mutex_) = 0;  // 0: none yet
    double weight_ ABSL_GUARDED_BY(queue_.mutex_) = 1;       // of the tenant, when the request became the head
    Condition changed_;
    bool woken_ ABSL_GUARDED_BY(queue_.mutex_) = false;
  };

  // Whether the node has several tenants; initially not. Then each is bounded: by the places, and in the line, of which
  // a tenant may use no more than is still free. So there is always room for others. Call it whenever tenants or their
  // limits may have changed: those that wait do not look by themselves.
  void SetFair(bool fair);
  // How many sequences decode computes at once. Until it is known nothing is bounded by it.
  void SetPlaces(size_t places);

  size_t size() const;

  // Counts that a request has returned its pages to decode.
  void CountReturn();
  uint64_t returns() const;

 private:
  struct Line {                            // of a tenant
    std::map<uint64_t, Request*> waiting;  // by arrival; those without a number
    std::array<size_t, 2> admitted{};      // by Kind: those that have a number and have not ended
    double virtual_time = 0;               // tokens / weight that it has used, or may still use
  };

  uint64_t NextArrival();
  absl::Status Join(Request& request);
  void Leave(const Request& request);
  void Wait(Request& request, RequestClock& clock, RequestClock::Duration duration);
  void Wake(Request& request);
  bool IsFirst(Request& request);
  void End(const Request& request);
  void Charge(const Request& request, uint32_t tokens);
  // The line whose first request may become the head; null: none now.
  Line* NextLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeHead(Line& line, Request& head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeLocked(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The head, or else the request that may become it.
  void WakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayBeNext(const Line& line) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t limit_;
  mutable Mutex mutex_;
  uint64_t last_arrival_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_seniority_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t returns_ ABSL_GUARDED_BY(mutex_) = 0;
  double virtual_time_ ABSL_GUARDED_BY(mutex_) = 0;  // at which the last head began
  bool fair_ ABSL_GUARDED_BY(mutex_) = false;
  size_t places_ ABSL_GUARDED_BY(mutex_) = 0;                 // of each kind; 0: not known
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;                // of all lines
  std::array<size_t, 2> admitted_ ABSL_GUARDED_BY(mutex_){};  // as in Line, of all
  // By number: the head, and those that returned. The lowest is first.
  std::map<uint64_t, Request*> numbered_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Line> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
