#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/cli/client/batch/http_executor.h"
#include "services/cli/client/batch/progress.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

TEST(BatchProgressTest, SaysWhatIsDoneAndWhatIsLeft) {
  EXPECT_EQ(HumanTime(9.4), "9 s");
  EXPECT_EQ(HumanTime(59.6), "1 min 00 s");
  EXPECT_EQ(HumanTime(725), "12 min 05 s");
  EXPECT_EQ(HumanTime(3725), "1 h 02 min");
  batch::Progress progress{.all = 2000};
  EXPECT_EQ(ProgressLine(progress), "0 of 2000 lines");
  progress.counts = {.done = 812, .failed = 3, .generated_tokens = 5000};
  progress.generated_tokens = 4000;
  progress.seconds = 10;
  progress.left = 725;
  progress.waiting_for = "HTTP 503: prefill does not answer";
  EXPECT_EQ(ProgressLine(progress),
            "812 of 2000 lines, 3 failed, 400.0 tok/s, 12 min 05 s left; waiting: HTTP 503: prefill does not answer");
}

TEST(BatchUrlTest, TakesAddressesAsClientsWriteThem) {
  EXPECT_EQ(*BaseUrl("127.0.0.1:8080"), "http://127.0.0.1:8080");
  EXPECT_EQ(*BaseUrl("http://localhost:8080/"), "http://localhost:8080");
  EXPECT_EQ(*BaseUrl("https://host:8443/moestro/v1/"), "https://host:8443/moestro");
  for (const char* wrong : {"ftp://host", "http://", "http://host:99999999", "http://host?x=1"}) {
    EXPECT_THAT(std::string(BaseUrl(wrong).status().message()), HasSubstr("--url")) << wrong;
  }
}

}  // namespace
}  // namespace moestro::cli
