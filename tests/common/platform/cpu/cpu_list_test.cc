#include "common/platform/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CpuList, ParsesTheSyntaxOfTheKernel) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*ParseCpuList("5-5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList("1023"), ElementsAre(1023));
}

TEST(CpuList, AscendingAndEachOnce) { EXPECT_THAT(*ParseCpuList("7,2-4,3,2"), ElementsAre(2, 3, 4, 7)); }

TEST(CpuList, ErrorsQuoteWhatIsWrong) {
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "a", "1-", "-1", "1-2-3", "0 - 3", " 1", "1 ", "0x1", "+1",
                           "--1", "1--2", "1.5", "0-3:2/4"}) {
    const auto cpus = ParseCpuList(text);
    ASSERT_FALSE(cpus.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(cpus.status()));
    EXPECT_THAT(cpus.status().message(), HasSubstr("is not a CPU or a range of CPUs")) << text;
  }
  EXPECT_THAT(ParseCpuList("0,3-x").status().message(), HasSubstr("'3-x'"));
  EXPECT_THAT(ParseCpuList("0,3-1").status().message(), HasSubstr("'3-1' is descending"));
  for (const char* text : {"1024", "0-1024", "99999999999999999999", "0-99999999999999999999"}) {
    EXPECT_THAT(ParseCpuList(text).status().message(), HasSubstr("exceeds CPU 1023")) << text;
  }
}

TEST(CpuList, FormatsRuns) {
  const int mixed[] = {0, 1, 2, 3, 8, 10, 11};
  EXPECT_EQ(FormatCpuList(mixed), "0-3,8,10-11");
  EXPECT_EQ(FormatCpuList({}), "none");
  for (const char* text : {"0", "0,2", "0-1", "3-5,7,9-1023"}) EXPECT_EQ(FormatCpuList(*ParseCpuList(text)), text);
}

}  // namespace
}  // namespace moestro
