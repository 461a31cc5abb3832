#include "services/router/output/markers.h"

#include <gtest/gtest.h>

namespace moestro::router {
namespace {

TEST(MarkerSetTest, TheLongestMarkerCounts) {
  const MarkerSet markers({"<b>", "<a>", "<ab>", "<a><b>", "", "é"});
  EXPECT_EQ(markers.At("<a>x").size, 3u);
  EXPECT_FALSE(markers.At("<a>x").may_grow);
  EXPECT_EQ(markers.At("<a><b>").size, 6u);
  EXPECT_EQ(markers.At("<a><").size, 3u);
  EXPECT_TRUE(markers.At("<a><").may_grow);
  EXPECT_EQ(markers.At("<").size, 0u);
  EXPECT_TRUE(markers.At("<").may_grow);
  EXPECT_EQ(markers.At("é").size, 2u);
  EXPECT_EQ(markers.At("x<a>").size, 0u);
  EXPECT_FALSE(markers.At("").may_grow);
  EXPECT_EQ(MarkerSet().At("<a>").size, 0u);
}

TEST(PendingTextTest, TakesTextUpToTheFirstMarker) {
  const MarkerSet markers({"<a>", "<ab>"});
  PendingText text;
  text.Append("x<y><");
  PendingText::Cut cut = text.TakeUntil(markers);
  EXPECT_EQ(cut.before, "x<y>");
  EXPECT_EQ(cut.marker, "");
  text.Append("ab>z<a");
  cut = text.TakeUntil(markers);
  EXPECT_EQ(cut.before, "");
  EXPECT_EQ(cut.marker, "<ab>");
  EXPECT_EQ(text.TakeUntil(markers).before, "z");
  text.End();
  EXPECT_EQ(text.TakeUntil(markers).before, "<a");
  EXPECT_EQ(text.rest(), "");
}

TEST(PendingTextTest, AMarkerThatMayGrowWaits) {
  const MarkerSet markers({"ab", "abcd"});
  PendingText text;
  std::string_view marker;
  EXPECT_EQ(text.TakeMarker(markers, &marker), PendingText::Next::kUnknown);
  text.Append("abc");
  EXPECT_EQ(text.TakeMarker(markers, &marker), PendingText::Next::kUnknown);
  text.Append("x");
  EXPECT_EQ(text.TakeMarker(markers, &marker), PendingText::Next::kMarker);
  EXPECT_EQ(marker, "ab");
  EXPECT_EQ(text.TakeMarker(markers, &marker), PendingText::Next::kOther);
  EXPECT_EQ(text.rest(), "cx");
}

}  // namespace
}  // namespace moestro::router
