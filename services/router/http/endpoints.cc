#include "services/router/http/endpoints.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro::router {
namespace {

bool Matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

// What people may have meant, as it is written first.
std::vector<std::string> Readings(const std::string& path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  std::vector<std::string> readings{plain, absl::StrCat("/v1", plain)};
  if (plain.starts_with("/v1/")) readings.push_back(plain.substr(3));
  return readings;
}

// Of what is longer nobody mistyped a letter or two.
constexpr size_t kLongestNear = 64;

// Letters to add, drop or replace.
size_t Distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t before = std::exchange(row[0], i);
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t replaced = before + (from[i - 1] == to[j - 1] ? 0 : 1);
      before = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

const Endpoint* Endpoints::Match(std::string_view path) const {
  const auto exact = std::ranges::find(endpoints_, path, &Endpoint::path);
  if (exact != endpoints_.end()) return &*exact;
  const auto found = std::ranges::find_if(endpoints_, [&](const Endpoint& one) { return Matches(one.path, path); });
  return found == endpoints_.end() ? nullptr : &*found;
}

Endpoints::Found Endpoints::Find(const RequestHead& head) const {
  Found found;
  const Endpoint* match = nullptr;
  for (std::string& path : Readings(head.path)) {
    if ((match = Match(path)) == nullptr) continue;
    found.path = match->path;
    found.target = std::move(path);
    break;
  }
  if (match == nullptr) return found;
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  for (const Endpoint& endpoint : endpoints_) {
    if (endpoint.path != found.path) continue;
    if (endpoint.method == method) found.endpoint = &endpoint;
    absl::StrAppend(&found.allowed, found.allowed.empty() ? "" : ", ", endpoint.method,
                    endpoint.method == "GET" ? ", HEAD" : "");
  }
  return found;
}

std::string Endpoints::Nearest(const std::string& path) const {
  if (path.size() > kLongestNear) return {};
  std::string nearest;
  size_t least = path.size() / 3 + 1;  // more changes make another path
  for (const std::string& one : Paths()) {
    // Clients put other prefixes before a path: "/api/v1/models".
    const size_t distance = path.ends_with(one) && one.size() > 1 ? 0 : Distance(path, one);
    if (distance >= least) continue;
    least = distance;
    nearest = one;
  }
  return nearest;
}

std::vector<std::string> Endpoints::Paths() const {
  std::vector<std::string> paths;
  for (const Endpoint& endpoint : endpoints_) {
    if (std::ranges::find(paths, endpoint.path) == paths.end()) paths.push_back(endpoint.path);
  }
  return paths;
}

}  // namespace moestro::router
