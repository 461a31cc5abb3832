#include "common/telemetry/json_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/details/log_msg.h>

#include <chrono>
#include <string>

#include "common/telemetry/log.h"

namespace moestro {
namespace {

using testing::HasSubstr;

std::string Format(const std::string& message) {
  const spdlog::log_clock::time_point time(std::chrono::milliseconds(1'700'000'000'042));
  const spdlog::details::log_msg event(time, {}, "decode", spdlog::level::info, message);
  spdlog::memory_buf_t line;
  JsonLogFormatter().clone()->format(event, line);
  return {line.data(), line.size()};
}

TEST(JsonLogTest, OneObjectALine) {
  EXPECT_EQ(Format("ready"), R"({"time":"2023-11-14T22:13:20.042Z","level":"info","role":"decode","message":"ready"})"
                             "\n");
}

TEST(JsonLogTest, TheRequestIdIsAField) {
  EXPECT_THAT(Format("[00ff] decode ended"), HasSubstr(R"("request_id":"00ff","message":"decode ended"})"));
  EXPECT_THAT(Format("[a b] text"), HasSubstr(R"("role":"decode","message":"[a b] text"})"));
  EXPECT_THAT(Format("[x]"), HasSubstr(R"("role":"decode","message":"[x]"})"));
  EXPECT_THAT(Format("[] text"), HasSubstr(R"("role":"decode","message":"text"})"));
}

TEST(JsonLogTest, AnyBytesStayOneLine) {
  const std::string line = Format("a \"b\"\n\xff");
  EXPECT_THAT(line, HasSubstr(R"("message":"a \"b\"\n)"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(LogTest, WrongFlagsAreNamed) {
  EXPECT_THAT(std::string(InitLogging("test", {.level = "loud"}).message()), HasSubstr("--log-level loud"));
  EXPECT_THAT(std::string(InitLogging("test", {.format = "xml"}).message()), HasSubstr("--log-format xml"));
}

}  // namespace
}  // namespace moestro
