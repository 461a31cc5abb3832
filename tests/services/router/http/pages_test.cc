#include "services/router/http/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

std::vector<nlohmann::ordered_json> Objects() { return {{{"id", "c"}}, {{"id", "b"}}, {{"id", "a"}}}; }

std::string Ids(const std::string& query, bool more) {
  const auto parsed = ParsePageQuery(query, 20, 100);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto page = Page(Objects(), *parsed);
  EXPECT_EQ(page["has_more"], more) << query;
  std::string ids;
  for (const auto& object : page["data"]) ids += object["id"];
  EXPECT_EQ(page["first_id"].is_null(), ids.empty());
  if (ids.empty()) return ids;
  EXPECT_EQ(page["first_id"], ids.substr(0, 1));
  EXPECT_EQ(page["last_id"], ids.substr(ids.size() - 1));
  return ids;
}

TEST(PagesTest, FollowTheQuery) {
  EXPECT_EQ(Ids("", false), "cba");
  EXPECT_EQ(Ids("limit=2", true), "cb");
  EXPECT_EQ(Ids("limit=2&after=b", false), "a");
  EXPECT_EQ(Ids("order=asc&limit=1", true), "a");
  EXPECT_EQ(Ids("order=asc&after=a", false), "bc");
  EXPECT_EQ(Ids("after=a", false), "");
  EXPECT_EQ(Ids("after=unknown", false), "");
}

TEST(PagesTest, APageMayEndBeforeAnId) {
  EXPECT_EQ(Ids("before_id=a", false), "cb");
  EXPECT_EQ(Ids("before_id=a&limit=1", true), "b");
  EXPECT_EQ(Ids("before_id=c", false), "");
  EXPECT_EQ(Ids("before_id=unknown", false), "");
  EXPECT_EQ(Ids("after_id=c&limit=1", true), "b");
}

TEST(PagesTest, WrongParametersAreNamed) {
  for (const char* query : {"limit=0", "limit=101", "limit=x", "limit", "order=up"}) {
    const auto parsed = ParsePageQuery(query, 20, 100);
    ASSERT_FALSE(parsed.ok()) << query;
    EXPECT_EQ(std::string(parsed.status().message()).substr(0, 5), std::string(query).substr(0, 5));
  }
}

}  // namespace
}  // namespace moestro::router
