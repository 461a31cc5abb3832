#include "services/router/http/callers.h"

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"

namespace moestro::router {
namespace {

bool IsSame(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, absl::ascii_tolower, absl::ascii_tolower);
}

bool EndsIn(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && IsSame(text.substr(text.size() - end.size()), end);
}

// Without the port; of "[::1]:80" the address.
std::string_view NameOf(std::string_view host) {
  if (!host.starts_with('[')) return host.substr(0, host.find(':'));
  const size_t end = std::min(host.find(']'), host.size());
  const std::string_view rest = host.substr(std::min(end + 1, host.size()));
  return rest.empty() || rest.starts_with(':') ? host.substr(1, end - 1) : host;
}

bool IsAddress(std::string_view name) {
  boost::system::error_code error;
  boost::asio::ip::make_address(std::string(name), error);
  return !error;
}

// A name that only this machine or its network gives out: one without a dot, or of a domain that is nobody's.
bool IsPrivate(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPrivate = {".localhost", ".local", ".internal"};
  return name.find('.') == std::string_view::npos ||
         std::ranges::any_of(kPrivate, [&](std::string_view domain) { return EndsIn(name, domain); });
}

bool IsListed(const std::vector<std::string>& hosts, std::string_view name) {
  return std::ranges::any_of(hosts, [&](const std::string& host) { return host == "*" || IsSame(host, name); });
}

bool HostIsOurs(const CallerRules& rules, std::string_view host) {
  if (!rules.loopback && rules.hosts.empty()) return true;  // others give it names that it does not know
  const std::string_view name = NameOf(host);
  return name.empty() || IsAddress(name) || IsPrivate(name) || IsListed(rules.hosts, name);
}

// Pages of the web come from http, https, or, in a frame without rights, from "null". All other schemes are those of
// programs that the user installed (vscode-webview:, app:).
bool OriginMayCall(const CallerRules& rules, std::string_view host, std::string_view origin) {
  if (origin.empty() || rules.cors_origin == "*" || origin == rules.cors_origin) return true;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (IsSame(origin.substr(0, scheme.size()), scheme)) return IsSame(origin.substr(scheme.size()), host);
  }
  return origin.find("://") != std::string_view::npos;
}

}  // namespace

absl::Status CheckCaller(const CallerRules& rules, std::string_view host, std::string_view origin) {
  if (!rules.keyless) return absl::OkStatus();
  if (!HostIsOurs(rules, host)) {
    return absl::PermissionDeniedError(
        absl::StrCat("Host ", text::Quoted(NameOf(host)),
                     ": not a name of this server; use localhost, or start the router with --http-host and that name"));
  }
  if (!OriginMayCall(rules, host, origin)) {
    return absl::PermissionDeniedError(
        absl::StrCat("Origin ", text::Quoted(origin),
                     ": pages from there may not call; start the router with --cors-origin and that origin"));
  }
  return absl::OkStatus();
}

}  // namespace moestro::router
