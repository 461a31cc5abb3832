// Who may call. Every front passes a request's credentials here before it reads the request's body. Thread-safe.
//
// Without a file of keys everybody may call, as the tenant "anonymous". With one, a caller needs a key of the file. One
// exception: the role's own unix socket is open to the user of the node only, so whoever comes from there without a key
// is the node's "operator", and has no limits.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/access/file_version.h"
#include "common/access/keys_file.h"
#include "common/base/mutex.h"
#include "common/telemetry/metrics.h"
#include "services/router/access/tenant.h"
#include "services/router/admission/clock.h"

namespace moestro::router {

// What a caller sends with a request. Empty: nothing.
struct Credentials {
  std::string_view authorization;  // gRPC metadata or HTTP header `authorization`: "Bearer KEY"
  std::string_view api_key;        // `x-api-key`: the key alone
  bool local = false;              // came over the role's unix socket
};

class AccessControl {
 public:
  using WallClock = std::function<absl::Time()>;                                              // thread-safe
  using HashKey = std::function<access::KeyHash(const access::Salt&, std::string_view key)>;  // thread-safe

  // `keys_file`: empty for none. The registry and `clock` must outlive this object.
  AccessControl(const std::string& keys_file, MetricsRegistry& registry, RequestClock& clock,
                WallClock wall_clock = absl::Now, HashKey hash_key = access::HashApiKey);

  // Reads the file. Call it once, before the first request. The errors of ReadKeysFile.
  absl::Status Load();

  // Reads the file again if it has changed, or if `always`. A file with an error changes nothing, and the log says so.
  // Cheap: call it about once a second. One thread at a time.
  void Reload(bool always);

  // Whether callers need a key.
  bool needs_key() const { return !path_.empty(); }
  // Whether there is more than one key. Thread-safe.
  bool has_several_tenants() const;

  // The tenant that the credentials belong to, if it may call `endpoint`; counts the request against its limit.
  // UNAUTHENTICATED: no key, or none that is valid. PERMISSION_DENIED: not this endpoint. RESOURCE_EXHAUSTED: too many
  // requests, with a retry-after.
  absl::StatusOr<std::shared_ptr<Tenant>> Admit(const Credentials& credentials, access::Endpoint endpoint);

  // The same for what any key may call, such as asking for the model. Counts against no limit.
  absl::StatusOr<std::shared_ptr<Tenant>> Identify(const Credentials& credentials);

  // The tenant of that name, for work that goes on without its client; null if its key is gone, has expired, or may not
  // generate any more.
  std::shared_ptr<Tenant> Named(const std::string& name) const;

 private:
  struct Holder {
    access::KeyEntry key;
    std::shared_ptr<Tenant> tenant;
  };
  // Without a key a caller costs a hash for each salt, and a file that `moestro keys add` makes has one.
  struct Ring {
    std::vector<Holder> holders;
    std::set<access::Salt> salts;
    std::unordered_multimap<uint64_t, size_t> by_digest;  // its first bytes; a place in `holders`
  };
  absl::Status Read();
  absl::StatusOr<Holder> Find(const Credentials& credentials);
  static absl::Status Refuse(prometheus::Counter& counter, const char* why);

  const std::string path_;
  MetricsRegistry& registry_;
  RequestClock& clock_;
  const WallClock wall_clock_;
  const HashKey hash_key_;
  const std::shared_ptr<Tenant> keyless_;  // anonymous, or the operator
  std::string own_secret_;                 // for a file without one
  access::FileVersion version_;            // of the file that was read last
  prometheus::Gauge& keys_;
  prometheus::Counter& reloads_failed_;
  prometheus::Counter& refused_missing_;
  prometheus::Counter& refused_unknown_;
  prometheus::Counter& refused_expired_;
  prometheus::Counter& refused_endpoint_;
  std::map<std::string, std::shared_ptr<Tenant>> tenants_;  // all that the file ever named
  mutable Mutex mutex_;
  std::shared_ptr<const Ring> ring_ ABSL_GUARDED_BY(mutex_) = std::make_shared<Ring>();
};

}  // namespace moestro::router
