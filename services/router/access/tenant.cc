#include "services/router/access/tenant.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "services/router/access/retry_after.h"

namespace moestro::router {
namespace {

prometheus::Counter& Tokens(MetricsRegistry& registry, const std::string& tenant, const std::string& kind) {
  return registry.AddCounter(
      "moestro_tenant_tokens_total",
      "Tokens of a key's requests: of prompts, of these found in the prefix cache, and generated",
      {{"tenant", tenant}, {"kind", kind}});
}

prometheus::Counter& Refused(MetricsRegistry& registry, const std::string& tenant, const std::string& limit) {
  return registry.AddCounter("moestro_tenant_refused_total", "Requests refused for a limit of their key",
                             {{"tenant", tenant}, {"limit", limit}});
}

std::string Hmac(const std::string& secret, const std::string& message) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  MOE_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                 reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(),
                 &bytes) != nullptr);
  return {digest.begin(), digest.begin() + bytes};
}

// Gives the bucket its limits, or removes it.
void SetBucket(std::optional<TokenBucket>& bucket, std::optional<int64_t> per_minute, std::optional<int64_t> burst,
               RequestClock::TimePoint now) {
  if (!per_minute) return bucket.reset();
  const TokenBucket::Limits limits{.per_minute = static_cast<double>(*per_minute),
                                   .burst = static_cast<double>(burst.value_or(*per_minute))};
  if (bucket) return bucket->SetLimits(limits, now);
  bucket.emplace(limits, now);
}

}  // namespace

TenantMetrics::TenantMetrics(MetricsRegistry& registry, const std::string& tenant)
    : running(registry.AddGauge("moestro_tenant_requests_running", "Requests of a key that hold KV pages",
                                {{"tenant", tenant}})),
      waiting(registry.AddGauge("moestro_tenant_requests_waiting", "Requests of a key that wait for KV pages",
                                {{"tenant", tenant}})),
      prompt_tokens(Tokens(registry, tenant, "prompt")),
      cached_tokens(Tokens(registry, tenant, "cached")),
      generated_tokens(Tokens(registry, tenant, "generated")),
      refused_requests(Refused(registry, tenant, "requests-per-minute")),
      refused_tokens(Refused(registry, tenant, "tokens-per-minute")),
      refused_waiting(Refused(registry, tenant, "waiting")) {}

Tenant::Tenant(const std::string& name, MetricsRegistry& registry)
    : name_(name), clock_(nullptr), metrics_(registry, name) {}

Tenant::Tenant(const access::KeyEntry& key, const std::string& secret, MetricsRegistry& registry, RequestClock& clock)
    : name_(key.name), clock_(&clock), metrics_(registry, key.name) {
  Update(key, secret);
}

void Tenant::Update(const access::KeyEntry& key, const std::string& secret) {
  MOE_CHECK(clock_ != nullptr && key.name == name_);
  const RequestClock::TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  key_ = key;
  secret_ = secret;
  SetBucket(requests_, key.limits.requests_per_minute, std::nullopt, now);
  SetBucket(tokens_, key.limits.tokens_per_minute, key.limits.burst_tokens, now);
}

double Tenant::weight() const {
  MutexLock lock(mutex_);
  return key_.weight;
}

access::TenantLimits Tenant::limits() const {
  MutexLock lock(mutex_);
  return key_.limits;
}

std::string Tenant::CacheScope(const std::string& client_scope) const {
  if (clock_ == nullptr) return client_scope;
  MutexLock lock(mutex_);
  // A name has no zero byte and is not empty, so no two pairs make the same message.
  std::string message = key_.shared_cache ? "" : name_;
  message.push_back('\0');
  return Hmac(secret_, message + client_scope);
}

absl::Status Tenant::TakeRequest() {
  if (clock_ == nullptr) return absl::OkStatus();
  const RequestClock::TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  if (!requests_) return absl::OkStatus();
  const std::optional<RequestClock::Duration> wait = requests_->Take(1, now);
  if (!wait) return absl::OkStatus();
  metrics_.refused_requests.Increment();
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("key '", name_, "': more than ", *key_.limits.requests_per_minute,
                                                " requests in a minute (requests-per-minute)")),
      *wait);
}

absl::StatusOr<Tenant::TokenHold> Tenant::TakeTokens(int64_t prompt, int64_t most, int64_t choices) {
  if (clock_ == nullptr) return TokenHold(nullptr, 0);
  const RequestClock::TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  if (!tokens_) return TokenHold(nullptr, 0);
  const auto burst = static_cast<int64_t>(tokens_->burst());
  if (prompt > burst) {
    metrics_.refused_tokens.Increment();
    return absl::InvalidArgumentError(absl::StrCat("input: key '", name_, "' may use ", burst,
                                                   " tokens at once (burst-tokens), and the prompt has ", prompt));
  }
  const int64_t tokens = std::min(prompt + std::min<int64_t>(most, kAnswerPart / choices), burst / choices);
  const std::optional<RequestClock::Duration> wait = tokens_->Take(static_cast<double>(tokens), now);
  if (!wait) return TokenHold(this, tokens);
  metrics_.refused_tokens.Increment();
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("key '", name_, "': prompt and the answer's beginning are ", tokens,
                                                " tokens, more than is left of ", *key_.limits.tokens_per_minute,
                                                " in a minute (tokens-per-minute)")),
      *wait);
}

void Tenant::PutBack(int64_t tokens) {
  const RequestClock::TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  if (tokens_) tokens_->PutBack(static_cast<double>(tokens), now);
}

void Tenant::Charge(int64_t tokens) {
  const RequestClock::TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  if (tokens_) tokens_->Charge(static_cast<double>(tokens), now);
}

Tenant::TokenHold::TokenHold(TokenHold&& other) noexcept
    : tenant_(std::exchange(other.tenant_, nullptr)), tokens_(other.tokens_), used_(other.used_) {}

Tenant::TokenHold::~TokenHold() {
  if (tenant_ != nullptr && tokens_ > used_) tenant_->PutBack(tokens_ - used_);
}

void Tenant::TokenHold::SetUsed(int64_t tokens) {
  used_ = tokens;
  if (tenant_ == nullptr || used_ <= tokens_) return;
  tokens_ += kAnswerPart;
  tenant_->Charge(kAnswerPart);
}

}  // namespace moestro::router
