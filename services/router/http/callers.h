// Whether a request comes from a web page that may call. A browser runs the code of any page that its user visits, and
// sends what it asks for to this machine, too. Where a key is needed no page has one; elsewhere these checks stand in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace moestro::router {

struct CallerRules {
  bool keyless = false;          // without it everything is let in
  bool loopback = false;         // only this machine reaches the address: its names are known
  std::string cors_origin = {};  // whose pages may call: "*", an origin, or empty: nobody's
  // Further names of the server ("*": any). Names that no public name server gives out are always right.
  std::vector<std::string> hosts = {};
};

// PERMISSION_DENIED with the remedy. `host`, `origin`: header fields, empty if absent.
//
// Host: a page whose name its owner points at 127.0.0.1 (DNS rebinding) calls by that name, and the browser takes the
// answers for its own. Origin: a page elsewhere sends what needs no permission of the server (a form, a text).
absl::Status CheckCaller(const CallerRules& rules, std::string_view host, std::string_view origin);

}  // namespace moestro::router
