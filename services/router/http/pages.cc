#include "services/router/http/pages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace moestro::router {

using Json = nlohmann::ordered_json;

absl::StatusOr<PageQuery> ParsePageQuery(std::string_view query, size_t default_limit, size_t most) {
  PageQuery page{.limit = default_limit};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(query), '&', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.first == "after" || field.first == "after_id") {
      page.after = field.second;
    } else if (field.first == "before_id") {
      page.before = field.second;
    } else if (field.first == "purpose") {
      page.purpose = field.second;
    } else if (field.first == "limit") {
      uint64_t limit = 0;
      if (!absl::SimpleAtoi(field.second, &limit) || limit < 1 || limit > most) {
        return absl::InvalidArgumentError(absl::StrCat("limit: must be a number from 1 to ", most));
      }
      page.limit = limit;
    } else if (field.first == "order") {
      if (field.second != "asc" && field.second != "desc") {
        return absl::InvalidArgumentError("order: must be asc or desc");
      }
      page.oldest_first = field.second == "asc";
    }
  }
  return page;
}

Json Page(std::vector<Json> objects, const PageQuery& query) {
  if (query.oldest_first) std::ranges::reverse(objects);
  const auto find = [&](const std::string& id) {
    return std::ranges::find_if(objects, [&](const Json& object) { return object["id"] == id; });
  };
  if (!query.after.empty()) {
    const auto last = find(query.after);
    objects.erase(objects.begin(), last == objects.end() ? last : std::next(last));
  }
  if (!query.before.empty()) {
    const auto next = find(query.before);
    objects.erase(next == objects.end() ? objects.begin() : next, objects.end());
  }
  const bool more = objects.size() > query.limit;
  const auto extra = static_cast<std::ptrdiff_t>(more ? objects.size() - query.limit : 0);
  // The page is next to the id that was named.
  const auto first = query.before.empty() ? objects.end() - extra : objects.begin();
  objects.erase(first, first + extra);
  Json page = {{"object", "list"}, {"data", Json::array()}, {"first_id", nullptr}, {"last_id", nullptr}};
  if (!objects.empty()) {
    page["first_id"] = objects.front()["id"];
    page["last_id"] = objects.back()["id"];
  }
  page["has_more"] = more;
  for (Json& object : objects) page["data"].push_back(std::move(object));
  return page;
}

}  // namespace moestro::router
