#include <sys/stat.h>

#include "tests/common/batch/batch_fixture.h"

namespace moestro::batch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using RequestFileTest = BatchTest;

LineError ErrorOf(const std::string& line) {
  Request request;
  LineError error;
  EXPECT_FALSE(ParseRequest(line, request, error)) << line;
  return error;
}

TEST_F(RequestFileTest, ABodyKeepsItsBytes) {
  const std::string body = R"({"zeta": 1, "alpha":  {"b": 1.50, "a": "ä\u00e4"}, "max_tokens": 3})";
  Write(Path("in.jsonl"), Line("one", body));
  const auto file = Open();
  const auto request = file->Read(0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->custom_id, "one");
  EXPECT_EQ(request->url, "/v1/completions");
  EXPECT_EQ(request->body, body);
}

TEST_F(RequestFileTest, HalvesOfCharactersAreRepaired) {
  Request request;
  LineError error;
  ASSERT_TRUE(
      ParseRequest(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "\ud83d"}})",
                   request, error))
      << error.message;
  EXPECT_EQ(request.body, R"({"prompt": "\ufffd"})");
}

TEST_F(RequestFileTest, ErrorsNameTheFieldInOpenAisWords) {
  struct Case {
    const char* line;
    const char* code;
    const char* param;
  };
  for (const Case& each : {
           Case{R"({"custom_id": "a")", "invalid_json_line", ""},
           Case{R"([])", "invalid_json_line", ""},
           Case{R"({"custom_id": "a", "custom_id": "b"})", "invalid_json_line", ""},
           Case{R"({"method": "POST", "url": "/v1/completions", "body": {}})", "missing_required_parameter",
                "custom_id"},
           Case{R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "missing_required_parameter",
                "body"},
           Case{R"({"custom_id": 7, "method": "POST", "url": "/v1/completions", "body": {}})", "invalid_custom_id",
                "custom_id"},
           Case{R"({"custom_id": "", "method": "POST", "url": "/v1/completions", "body": {}})", "invalid_custom_id",
                "custom_id"},
           Case{R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})", "invalid_method",
                "method"},
           Case{R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}})", "invalid_url", "url"},
           Case{R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": []})", "invalid_request",
                "body"},
           Case{R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": true}})",
                "invalid_request", "body.stream"},
       }) {
    const LineError error = ErrorOf(each.line);
    EXPECT_EQ(error.code, each.code) << each.line;
    EXPECT_EQ(error.param, each.param) << each.line;
    EXPECT_FALSE(error.message.empty()) << each.line;
  }
}

TEST_F(RequestFileTest, TheFirstErrorsNameTheirLines) {
  std::string text = Line("a") + "\n" + Line("b") + Line("a") + "no\n";
  for (int i = 0; i < 30; ++i) text += "no\n";
  Write(Path("in.jsonl"), text);
  RequestFile::Problems problems;
  const auto file = RequestFile::Open(Path("in.jsonl"), {}, problems);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(problems.all, 32u);
  ASSERT_EQ(problems.errors.size(), RequestFile::kMaxErrors);
  EXPECT_EQ(problems.errors[0].code, "duplicate_custom_id");
  EXPECT_EQ(problems.errors[0].line, 4u);  // the empty line counts as one
  EXPECT_EQ(problems.errors[1].line, 5u);
  EXPECT_THAT(std::string(file.status().message()), AllOf(HasSubstr(Path("in.jsonl")), HasSubstr("32 lines are wrong"),
                                                          HasSubstr("'a' is that of line 1"), HasSubstr("and more")));
}

TEST_F(RequestFileTest, ABatchOfOneEndpointTakesNoOther) {
  Write(Path("in.jsonl"), Line("a"));
  RequestFile::Problems problems;
  EXPECT_TRUE(RequestFile::Open(Path("in.jsonl"), {.url = "/v1/completions"}, problems).ok());
  EXPECT_FALSE(RequestFile::Open(Path("in.jsonl"), {.url = "/v1/chat/completions"}, problems).ok());
  ASSERT_EQ(problems.errors.size(), 1u);
  EXPECT_EQ(problems.errors[0].code, "mismatched_endpoint");
}

TEST_F(RequestFileTest, ABoundOfRequestsIsABound) {
  MakeRequests(3);
  RequestFile::Problems problems;
  EXPECT_TRUE(RequestFile::Open(Path("in.jsonl"), {.most_requests = 3}, problems).ok());
  EXPECT_FALSE(RequestFile::Open(Path("in.jsonl"), {.most_requests = 2}, problems).ok());
  ASSERT_EQ(problems.errors.size(), 1u);
  EXPECT_EQ(problems.errors[0].code, "too_many_tasks");
}

TEST_F(RequestFileTest, LineEndsDoNotMatter) {
  std::string text = Line("a");
  text.insert(text.size() - 1, "\r");
  text += Line("b");
  text.pop_back();  // the last one has none
  Write(Path("in.jsonl"), text);
  const auto file = Open();
  ASSERT_EQ(file->size(), 2u);
  EXPECT_EQ(file->Read(1)->custom_id, "b");
  EXPECT_EQ(file->identity().bytes, text.size());
}

TEST_F(RequestFileTest, OneByteChangesTheIdentity) {
  const auto before = MakeRequests(3)->identity();
  EXPECT_EQ(MakeRequests(3)->identity(), before);
  Write(Path("in.jsonl"), Line("0") + Line("2") + Line("1"));
  EXPECT_NE(Open()->identity(), before);
}

TEST_F(RequestFileTest, AChangeWhileItIsOpenIsNoticed) {
  const auto file = MakeRequests(2);
  std::fstream(Path("in.jsonl"), std::ios::in | std::ios::out) << "{ ";
  EXPECT_EQ(file->Read(0).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(file->Read(0).status().message()), HasSubstr(Path("in.jsonl")));
  EXPECT_TRUE(file->Read(1).ok());
}

TEST_F(RequestFileTest, FilesWithoutRequestsAreNamed) {
  Write(Path("in.jsonl"), "\n \n");
  RequestFile::Problems problems;
  EXPECT_THAT(std::string(RequestFile::Open(Path("in.jsonl"), {}, problems).status().message()),
              HasSubstr("has no request"));
  EXPECT_EQ(RequestFile::Open(Path("none"), {}, problems).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RequestFile::Open(folder_, {}, problems).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace moestro::batch
