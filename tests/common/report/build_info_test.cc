#include "common/report/build_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(BuildInfo, SaysWhenSourcesHadUncommittedChanges) {
  EXPECT_FALSE(IsDirty("4a2ffd1"));
  EXPECT_TRUE(IsDirty("v0.1-3-g4a2ffd1-dirty"));
  EXPECT_EQ(RevisionText("4a2ffd1"), "4a2ffd1");
  EXPECT_EQ(RevisionText("4a2ffd1-dirty"), "4a2ffd1-dirty (with uncommitted changes)");
  EXPECT_EQ(RevisionText(""), "unknown");
}

TEST(BuildInfo, KnowsItsCompilerAndTheDay) {
  EXPECT_FALSE(ThisBuild().compiler.empty());
  EXPECT_FALSE(ThisBuild().version.empty());
  EXPECT_THAT(Today(), testing::MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]"));
}

}  // namespace
}  // namespace moestro
