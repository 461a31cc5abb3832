// Who calls, and what it may do: the holder of one API key. Thread-safe.
//
// A tenant lives as long as the process. When the file of keys changes, the settings change, and what the tenant has
// used up stays used up.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/access/keys_file.h"
#include "common/base/mutex.h"
#include "common/telemetry/metrics.h"
#include "services/router/access/token_bucket.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

// Of an answer, so many tokens count before they are generated, and each time that so many more are due. An answer may
// become as long as the context: counting all of that at once would keep the other requests of the key away.
inline constexpr uint32_t kAnswerPart = 1024;

// Labelled with the tenant's name. The names are those of the file, so their number is bounded.
struct TenantMetrics {
  TenantMetrics(MetricsRegistry& registry, const std::string& tenant);  // the registry must outlive this

  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& cached_tokens;
  prometheus::Counter& generated_tokens;
  // Requests refused for a limit of the key.
  prometheus::Counter& refused_requests;  // requests-per-minute
  prometheus::Counter& refused_tokens;    // tokens-per-minute
  prometheus::Counter& refused_waiting;   // waiting, or its share of the line
};

class Tenant {
 public:
  // A tenant without limits, whose cache scopes are those that its clients choose. For a router without keys.
  Tenant(const std::string& name, MetricsRegistry& registry);
  // `secret`: of the cache scopes.
  Tenant(const access::KeyEntry& key, const std::string& secret, MetricsRegistry& registry, RequestClock& clock);

  void Update(const access::KeyEntry& key, const std::string& secret);

  const std::string& name() const { return name_; }
  TenantMetrics& metrics() { return metrics_; }
  double weight() const;
  access::TenantLimits limits() const;

  // The scope of the prefix cache for a request whose client has chosen `client_scope`. No client can choose it such
  // that it equals one of another tenant: it is HMAC-SHA256(secret, tenant, client_scope).
  std::string CacheScope(const std::string& client_scope) const;

  // Counts a request against requests-per-minute. RESOURCE_EXHAUSTED with a retry-after.
  absl::Status TakeRequest();

  // Tokens of a request, taken from tokens-per-minute. The destructor puts back what was not used. Must not outlive the
  // tenant.
  class TokenHold {
   public:
    TokenHold(TokenHold&& other) noexcept;
    TokenHold& operator=(TokenHold&&) = delete;
    ~TokenHold();
    // Initially 0; never falls. Takes more where the request has used up what it holds, even if the key has none left:
    // no answer ends for that, but the key's next request waits the longer.
    void SetUsed(int64_t tokens);

   private:
    friend class Tenant;
    TokenHold(Tenant* tenant, int64_t tokens) : tenant_(tenant), tokens_(tokens) {}
    Tenant* tenant_;  // null: nothing is limited
    int64_t tokens_;
    int64_t used_ = 0;
  };
  // For a prompt and an answer of `most` tokens, of which kAnswerPart count now, or this choice's share of it.
  // RESOURCE_EXHAUSTED, with a retry-after: then there will be tokens, for all `choices` of the request together.
  // INVALID_ARGUMENT: the prompt exceeds the burst, so never.
  absl::StatusOr<TokenHold> TakeTokens(int64_t prompt, int64_t most, int64_t choices = 1);

 private:
  void PutBack(int64_t tokens);
  void Charge(int64_t tokens);

  const std::string name_;
  RequestClock* const clock_;  // null: without limits
  TenantMetrics metrics_;
  mutable Mutex mutex_;
  access::KeyEntry key_ ABSL_GUARDED_BY(mutex_);
  std::string secret_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenBucket> requests_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenBucket> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
