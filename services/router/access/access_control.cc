#include "services/router/access/access_control.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/access/api_key.h"
#include "common/base/status.h"
#include "common/telemetry/log.h"

namespace moestro::router {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr char kBearer[] = "bearer ";  // its case does not matter (RFC 9110)

prometheus::Counter& Refused(MetricsRegistry& registry, const std::string& reason) {
  return registry.AddCounter("moestro_access_refused_total", "Calls refused because of their API key",
                             {{"reason", reason}});
}

// Of the digest, to look for it.
uint64_t StartOf(const access::KeyHash& hash) {
  uint64_t start = 0;
  std::memcpy(&start, hash.digest.data(), sizeof(start));
  return start;
}

// The key that the credentials hold; empty if they hold none.
std::string KeyOf(const Credentials& credentials) {
  std::string value(credentials.authorization.empty() ? credentials.api_key : credentials.authorization);
  if (absl::StartsWithIgnoreCase(value, kBearer)) value.erase(0, std::size(kBearer) - 1);
  absl::StripAsciiWhitespace(&value);
  return value;
}

}  // namespace

AccessControl::AccessControl(const std::string& keys_file, MetricsRegistry& registry, RequestClock& clock,
                             WallClock wall_clock, HashKey hash_key)
    : path_(keys_file),
      registry_(registry),
      clock_(clock),
      wall_clock_(std::move(wall_clock)),
      hash_key_(std::move(hash_key)),
      keyless_(std::make_shared<Tenant>(keys_file.empty() ? access::kAnonymous : access::kOperator, registry)),
      keys_(registry.AddGauge("moestro_access_keys", "API keys in use; 0: callers need none")),
      reloads_failed_(registry.AddCounter("moestro_access_reloads_failed_total",
                                          "Times that the file of API keys had an error; the keys before it stay")),
      refused_missing_(Refused(registry, "missing")),
      refused_unknown_(Refused(registry, "unknown")),
      refused_expired_(Refused(registry, "expired")),
      refused_endpoint_(Refused(registry, "endpoint")) {}

absl::Status AccessControl::Load() {
  if (path_.empty()) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(own_secret_, access::RandomHex(kSecretBytes));
  return Read();
}

void AccessControl::Reload(bool always) {
  if (path_.empty() || (!always && access::FileVersion::Of(path_) == version_)) return;
  const absl::Status status = Read();
  if (status.ok()) return;
  reloads_failed_.Increment();
  LogError("{}; the keys before it stay in use", std::string(status.message()));
}

absl::Status AccessControl::Read() {
  version_ = access::FileVersion::Of(path_);  // before the file is read: if it changes meanwhile, it is read again
  const absl::StatusOr<access::KeysFile> file = access::ReadKeysFile(path_);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("--keys-file ", std::string(file.status().message())));
  const std::string& secret = file->secret.empty() ? own_secret_ : file->secret;
  auto ring = std::make_shared<Ring>();
  for (const access::KeyEntry& key : file->keys) {
    std::shared_ptr<Tenant>& tenant = tenants_[key.name];
    if (tenant == nullptr) {
      tenant = std::make_shared<Tenant>(key, secret, registry_, clock_);
    } else {
      tenant->Update(key, secret);
    }
    ring->salts.insert(key.hash.salt);
    ring->by_digest.emplace(StartOf(key.hash), ring->holders.size());
    ring->holders.push_back({key, tenant});
  }
  keys_.Set(static_cast<double>(ring->holders.size()));
  LogInfo("{} API keys from {}", ring->holders.size(), path_);
  MutexLock lock(mutex_);
  ring_ = std::move(ring);
  return absl::OkStatus();
}

bool AccessControl::has_several_tenants() const {
  MutexLock lock(mutex_);
  return ring_->holders.size() > 1;
}

absl::Status AccessControl::Refuse(prometheus::Counter& counter, const char* why) {
  counter.Increment();
  return absl::UnauthenticatedError(why);
}

absl::StatusOr<AccessControl::Holder> AccessControl::Find(const Credentials& credentials) {
  if (!needs_key()) return Holder{.key = {}, .tenant = keyless_};
  const std::string key = KeyOf(credentials);
  if (key.empty()) {
    if (credentials.local) return Holder{.key = {}, .tenant = keyless_};
    return Refuse(refused_missing_, "an API key is needed: send 'authorization: Bearer KEY' or 'x-api-key: KEY'");
  }
  std::shared_ptr<const Ring> ring;
  {
    MutexLock lock(mutex_);
    ring = ring_;
  }
  // Who does not know the salt learns nothing from the time of a look-up: no key leads to a chosen digest.
  const Holder* found = nullptr;
  if (access::IsApiKey(key)) {
    for (const access::Salt& salt : ring->salts) {
      const auto [first, last] = ring->by_digest.equal_range(StartOf(hash_key_(salt, key)));
      for (auto place = first; place != last; ++place) {
        const Holder& holder = ring->holders[place->second];
        if (access::Matches(holder.key.hash, key)) found = &holder;
      }
    }
  }
  if (found == nullptr) return Refuse(refused_unknown_, "the API key is not valid");
  if (wall_clock_() >= found->key.expires) return Refuse(refused_expired_, "the API key has expired");
  return *found;
}

absl::StatusOr<std::shared_ptr<Tenant>> AccessControl::Identify(const Credentials& credentials) {
  MOE_ASSIGN_OR_RETURN(Holder holder, Find(credentials));
  return std::move(holder.tenant);
}

std::shared_ptr<Tenant> AccessControl::Named(const std::string& name) const {
  if (!needs_key()) return name == keyless_->name() ? keyless_ : nullptr;
  std::shared_ptr<const Ring> ring;
  {
    MutexLock lock(mutex_);
    ring = ring_;
  }
  for (const Holder& holder : ring->holders) {
    if (holder.key.name != name) continue;
    const bool may = wall_clock_() < holder.key.expires && holder.key.allows(access::Endpoint::kGenerate);
    return may ? holder.tenant : nullptr;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Tenant>> AccessControl::Admit(const Credentials& credentials,
                                                             access::Endpoint endpoint) {
  MOE_ASSIGN_OR_RETURN(Holder holder, Find(credentials));
  if (holder.tenant != keyless_ && !holder.key.allows(endpoint)) {
    refused_endpoint_.Increment();
    return absl::PermissionDeniedError(
        absl::StrCat("key '", holder.key.name, "' may not call '", access::EndpointName(endpoint), "' (endpoints)"));
  }
  MOE_RETURN_IF_ERROR(holder.tenant->TakeRequest());
  return std::move(holder.tenant);
}

}  // namespace moestro::router
