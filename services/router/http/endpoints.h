// Which request goes where. The only place that decides whether a request is let in, before its body is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/router/access/access_control.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"

namespace moestro::router {

struct Endpoint {
  // An error becomes the reply; it has no effect once the reply has begun.
  using Handle = std::function<absl::Status(HttpRequest& request, Response& response)>;
  // Decides by a request's credentials alone whether it is let in, and for whom. Empty: everybody may call.
  using Admit = std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const Credentials&)>;
  // On the event loop: for what takes microseconds and must answer whatever else happens.
  enum class Where { kWorker, kEventLoop };

  std::string method;  // GET serves HEAD, too
  std::string path;    // "/v1/models", or "/v1/models/*" with any text in place of the star
  Handle handle;
  Where where = Where::kWorker;
  Admit admit = {};
  std::optional<uint64_t> body_bytes = std::nullopt;  // the longest body; nullopt: as other endpoints
};

class Endpoints {  // immutable while it is used; then thread-safe
 public:
  void Add(Endpoint endpoint) { endpoints_.push_back(std::move(endpoint)); }

  struct Found {
    const Endpoint* endpoint = nullptr;  // null: none
    std::string path;                    // as it was added; empty: no such path
    std::string allowed;                 // its methods, "GET, HEAD"
    std::string target;                  // the path that was meant, without what people write too much or leave out
  };
  // A path with doubled slashes or one at its end, without "/v1" or with one too much, means the one that is here.
  Found Find(const RequestHead& head) const;

  // The path that looks most like this one; empty: none is near.
  std::string Nearest(const std::string& path) const;

  std::vector<std::string> Paths() const;  // in the order of Add, each once

 private:
  const Endpoint* Match(std::string_view path) const;

  std::vector<Endpoint> endpoints_;
};

}  // namespace moestro::router
