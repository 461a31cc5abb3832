#include "services/router/http/endpoints.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

bool Matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace

Endpoints::Found Endpoints::Find(const RequestHead& head) const {
  Found found;
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  for (const Endpoint& endpoint : endpoints_) {
    if (!Matches(endpoint.path, head.path)) continue;
    if (endpoint.method == method) found.endpoint = &endpoint;
    found.path = endpoint.path;
    absl::StrAppend(&found.allowed, found.allowed.empty() ? "" : ", ", endpoint.method,
                    endpoint.method == "GET" ? ", HEAD" : "");
  }
  return found;
}

std::vector<std::string> Endpoints::Paths() const {
  std::vector<std::string> paths;
  for (const Endpoint& endpoint : endpoints_) {
    if (std::ranges::find(paths, endpoint.path) == paths.end()) paths.push_back(endpoint.path);
  }
  return paths;
}

}  // namespace moestro::router
