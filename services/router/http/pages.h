// Lists as OpenAI's API gives them, in pages.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moestro::router {

struct PageQuery {
  std::string after = {};   // the id before the first one; empty: from the beginning
  std::string before = {};  // the id behind the last one; empty: to the end
  size_t limit = 0;
  bool oldest_first = false;
  std::string purpose = {};
};

// Of a query "limit=20&after=ID&order=asc&purpose=P", or with `after_id` and `before_id`, as Anthropic has them.
// INVALID_ARGUMENT names the parameter. `most`: of `limit`.
absl::StatusOr<PageQuery> ParsePageQuery(std::string_view query, size_t default_limit, size_t most);

// {"object": "list", "data", "first_id", "last_id", "has_more"} of the objects, each of which has an id, newest first.
nlohmann::ordered_json Page(std::vector<nlohmann::ordered_json> objects, const PageQuery& query);

}  // namespace moestro::router
