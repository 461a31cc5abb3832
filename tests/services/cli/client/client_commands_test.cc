#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CliTest, GenerateStreamsTextAndSumsUp) {
  const Result result = Run({"generate", "--prompt", "hello", "--max-tokens", "5", "--temperature", "0"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.out, "ok\xEF\xBF\xBD\n");
  EXPECT_THAT(result.err, HasSubstr("3 prompt (1 cached) + 2 tokens (stop), first after 0.500 s, 2.0 tok/s, path split "
                                    "(3 new tokens >= 2), then chunked, FP8 activations"));
  const v1::GenerateRequest request = router_.requests().at(0);
  EXPECT_EQ(request.prompt(), "hello");
  EXPECT_EQ(request.max_tokens(), 5u);
  EXPECT_TRUE(request.has_temperature());
  EXPECT_FALSE(request.has_top_p());
  EXPECT_FALSE(request.has_seed());
}

TEST_F(CliTest, TheLongestTimeoutIsOneThatTheClockHolds) {
  EXPECT_TRUE(Run({"tokenize", "a", "--timeout", "604800"}).status.ok());
  EXPECT_THAT(std::string(Run({"tokenize", "a", "--timeout", "1e10"}).status.message()), HasSubstr("--timeout"));
}

TEST_F(CliTest, CommandsThatTalkToTheServerSayHowLongAConnectionMayTake) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{"generate", "--prompt", "x"},
                                                                                       {"chat"},
                                                                                       {"score", "--text", "x"},
                                                                                       {"eval", "questions.jsonl"},
                                                                                       {"model"},
                                                                                       {"tokenize", "a"},
                                                                                       {"detokenize", "1"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--connect-timeout", "0"});
    EXPECT_THAT(std::string(Run(arguments).status.message()), HasSubstr("--connect-timeout")) << command[0];
  }
}

TEST_F(CliTest, GenerateJson) {
  const Result result = Run({"generate", "--token-ids", "1,2,3", "--json", "--seed", "7", "--stop-id", "4,5"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["token_ids"], json({10, 11}));
  EXPECT_EQ(answer["logprobs"].size(), 2u);
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
  EXPECT_EQ(answer["request_id"], "r1");
  EXPECT_EQ(answer["path"], "chunked");
  EXPECT_EQ(answer["path_reason"], "3 new tokens >= 2");
  EXPECT_EQ(answer["prefill_activations"], "fp8");
  EXPECT_EQ(answer["usage"]["cached_tokens"], 1);
  EXPECT_EQ(answer["timings"]["prefill_seconds"], 0.25);
  EXPECT_EQ(answer["timings"]["tokens_per_second"], 2.0);
  EXPECT_EQ(router_.requests().at(0).token_ids().ids_size(), 3);
  EXPECT_EQ(router_.requests().at(0).stop_ids_size(), 2);
  EXPECT_EQ(router_.requests().at(0).seed(), 7u);
}

TEST_F(CliTest, GenerateSendsEveryOption) {
  const Result result = Run({"generate",
                             "--prompt",
                             "x",
                             "--stop",
                             "\n\n",
                             "--stop",
                             "END",
                             "--min-p",
                             "0.1",
                             "--presence-penalty",
                             "-1",
                             "--frequency-penalty",
                             "0.5",
                             "--repetition-penalty",
                             "1.25",
                             "--logit-bias",
                             "7=-100",
                             "--logit-bias",
                             "8=0.5",
                             "--top-logprobs",
                             "3",
                             "--keep-special-tokens",
                             "--request-id",
                             "mine",
                             "--json"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const v1::GenerateRequest request = router_.requests().at(0);
  EXPECT_THAT(request.stop(), ::testing::ElementsAre("\n\n", "END"));
  EXPECT_EQ(request.min_p(), 0.1f);
  EXPECT_EQ(request.presence_penalty(), -1);
  EXPECT_EQ(request.frequency_penalty(), 0.5f);
  EXPECT_EQ(request.repetition_penalty(), 1.25f);
  EXPECT_EQ(request.logit_bias().at(7), -100);
  EXPECT_EQ(request.logit_bias().at(8), 0.5f);
  EXPECT_EQ(request.top_logprobs(), 3u);
  EXPECT_TRUE(request.keep_special_tokens());
  EXPECT_EQ(request.request_id(), "mine");
  EXPECT_EQ(json::parse(result.out)["top_logprobs"], json::array());
  for (const char* bad : {"7", "x=1", "7=", "7=x"}) {
    EXPECT_THAT(std::string(Run({"generate", "--prompt", "x", "--logit-bias", bad}).status.message()),
                HasSubstr("--logit-bias"));
  }
  EXPECT_THAT(std::string(Run({"generate", "--prompt", "x", "--stop", "\xFF"}).status.message()), HasSubstr("--stop"));
}

TEST_F(CliTest, GenerateTakesOneConstraint) {
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "{\"type\": \"object\"}";
  const auto constraint = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"generate", "--prompt", "x"});
    const absl::Status status = Run(flags).status;
    EXPECT_TRUE(status.ok()) << status;
    return router_.requests().back().constraint();
  };
  EXPECT_EQ(constraint({}).kind(), v1::Constraint::KIND_NONE);
  EXPECT_EQ(constraint({"--json-object"}).kind(), v1::Constraint::KIND_JSON_OBJECT);
  EXPECT_EQ(constraint({"--json-schema", file}).kind(), v1::Constraint::KIND_JSON_SCHEMA);
  EXPECT_EQ(constraint({"--grammar", file}).kind(), v1::Constraint::KIND_GRAMMAR);
  EXPECT_EQ(constraint({"--grammar", file}).text(), "{\"type\": \"object\"}");
  EXPECT_EQ(constraint({"--regex", "a|b"}).kind(), v1::Constraint::KIND_REGEX);
  EXPECT_EQ(constraint({"--regex", "a|b"}).text(), "a|b");
  EXPECT_FALSE(Run({"generate", "--prompt", "x", "--json-object", "--regex", "a"}).status.ok());
  EXPECT_TRUE(absl::IsNotFound(Run({"generate", "--prompt", "x", "--grammar", directory_ + "/absent"}).status));
  std::ofstream(file) << "\xFF";
  EXPECT_THAT(std::string(Run({"generate", "--prompt", "x", "--json-schema", file}).status.message()),
              HasSubstr("--json-schema"));
}

TEST_F(CliTest, GenerateReadsAFile) {
  std::ofstream(directory_ + "/prompt.txt") << "line 1\nline 2\n";
  ASSERT_TRUE(Run({"generate", "--prompt-file", directory_ + "/prompt.txt"}).status.ok());
  EXPECT_EQ(router_.requests().at(0).prompt(), "line 1\nline 2\n");
  EXPECT_TRUE(absl::IsNotFound(Run({"generate", "--prompt-file", directory_ + "/absent"}).status));
}

TEST_F(CliTest, GenerateReadsAPipe) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "from a pipe"; });
  EXPECT_TRUE(Run({"generate", "--prompt-file", pipe}).status.ok());
  writer.join();
  EXPECT_EQ(router_.requests().at(0).prompt(), "from a pipe");
}

// They can be opened, which is not enough.
TEST_F(CliTest, DirectoriesAreNoFiles) {
  const auto says = HasSubstr(directory_ + ": cannot be read: Is a directory");
  EXPECT_THAT(Run({"generate", "--prompt-file", directory_}).status.message(), says);
  EXPECT_THAT(Run({"score", "--file", directory_}).status.message(), says);
  EXPECT_THAT(Run({"eval", directory_}).status.message(), says);
  EXPECT_THAT(Run({"simulate", directory_}, false).status.message(), says);
  std::filesystem::create_directories(directory_ + "/config.json");
  EXPECT_THAT(Run({"plan", "--explain", "dslp", "--model", directory_}, false).status.message(),
              HasSubstr("config.json: cannot be read: Is a directory"));
}

// The API takes no other text, and does not say which it was.
TEST_F(CliTest, TextIsUtf8) {
  const std::string latin1 = directory_ + "/latin1.txt";
  std::ofstream(latin1) << "na\xEFve";
  const auto says = [](const std::string& source) {
    return HasSubstr(source + ": not valid UTF-8 at byte 2; convert it to UTF-8");
  };
  EXPECT_THAT(Run({"generate", "--prompt", "na\xEFve"}).status.message(), says("--prompt"));
  EXPECT_THAT(Run({"generate", "--prompt-file", latin1}).status.message(), says("--prompt-file " + latin1));
  EXPECT_THAT(Run({"score", "--file", latin1}).status.message(), says("--file " + latin1));
  EXPECT_THAT(Run({"tokenize", "na\xEFve"}).status.message(), says("--text"));
  EXPECT_THAT(Run({"chat", "--system", "na\xEFve"}).status.message(), says("--system"));
  EXPECT_TRUE(router_.requests().empty());
}

TEST_F(CliTest, ChatSendsToolsAndTemplateFlags) {
  std::ofstream(directory_ + "/tools.json") << "[ {\"type\": 1} ]\n";
  std::istringstream lines("first\nsecond\n/reset\nthird\n");
  std::streambuf* const terminal = std::cin.rdbuf(lines.rdbuf());
  const Result result = Run({"chat", "--tools", directory_ + "/tools.json", "--template-flag", "enable_thinking=false",
                             "--template-flag", "reasoning_effort=\"high\""});
  std::cin.rdbuf(terminal);
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(router_.requests().size(), 3u);
  for (const v1::GenerateRequest& request : router_.requests()) {
    EXPECT_EQ(request.chat().tools(), "[ {\"type\": 1} ]\n");  // the router reads it
    EXPECT_EQ(json::parse(request.chat().template_flags()),
              json({{"enable_thinking", false}, {"reasoning_effort", "high"}}));
  }
  EXPECT_EQ(router_.requests().at(1).chat().messages_size(), 3);
  EXPECT_EQ(router_.requests().at(2).chat().messages_size(), 1);
}

TEST_F(CliTest, GenerateSendsAMessageWithToolsAndTemplateFlags) {
  std::ofstream(directory_ + "/tools.json") << "[]";
  const Result result = Run({"generate", "--chat", "--prompt", "hello", "--tools", directory_ + "/tools.json",
                             "--template-flag", "thinking=true", "--max-tokens", "5"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const v1::GenerateRequest request = router_.requests().at(0);
  ASSERT_EQ(request.chat().messages_size(), 1);
  EXPECT_EQ(request.chat().messages(0).role(), "user");
  EXPECT_EQ(request.chat().messages(0).content(), "hello");
  EXPECT_EQ(request.chat().tools(), "[]");
  EXPECT_EQ(json::parse(request.chat().template_flags()), json({{"thinking", true}}));
  EXPECT_EQ(request.max_tokens(), 5u);
  // A plain prompt has no template.
  for (const char* flag : {"--tools", "--template-flag"}) {
    const Result plain = Run({"generate", "--prompt", "hello", flag, "a=1"});
    EXPECT_THAT(plain.status.message(), AllOf(HasSubstr(flag), HasSubstr("--chat")));
  }
  EXPECT_THAT(Run({"generate", "--chat", "--token-ids", "1,2"}).status.message(), HasSubstr("--token-ids"));
  EXPECT_EQ(router_.requests().size(), 1u);
}

TEST_F(CliTest, BadToolsAndFlagsOfAChatAreNamed) {
  const std::string file = directory_ + "/tools.json";
  EXPECT_TRUE(absl::IsNotFound(Run({"chat", "--tools", file}).status));
  std::ofstream(file) << "[{";
  EXPECT_THAT(Run({"chat", "--tools", file}).status.message(), HasSubstr("--tools " + file + ": not valid JSON"));
  EXPECT_THAT(Run({"generate", "--chat", "--prompt", "a", "--tools", file}).status.message(),
              HasSubstr("--tools " + file + ": not valid JSON"));
  for (const std::string flag : {"thinking", "=1", "effort=high", "a="}) {
    EXPECT_THAT(Run({"chat", "--template-flag", flag}).status.message(),
                HasSubstr("--template-flag " + flag + ": must be NAME=JSON; a text needs quotes"));
  }
  EXPECT_TRUE(router_.requests().empty());
}

TEST_F(CliTest, ExactlyOneInput) {
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"generate"}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"generate", "--prompt", "a", "--token-ids", "1"}).status));
}

TEST_F(CliTest, ScorePrintsALineForEachPosition) {
  const Result result = Run({"score", "--token-ids", "5,6", "--top", "2"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const size_t newline = result.out.find('\n');
  const json first = json::parse(result.out.substr(0, newline));
  const json second = json::parse(result.out.substr(newline + 1));
  EXPECT_EQ(first["text"], "<5>");
  EXPECT_TRUE(first["logprob"].is_null());
  EXPECT_EQ(second["logprob"], -1.5);
  EXPECT_EQ(second["top"].size(), 2u);
  EXPECT_EQ(second["top"][0]["text"], "<7>");
  EXPECT_EQ(json::parse(Run({"score", "--token-ids", "5,6", "--json"}).out)["sum_logprob"], -1.5);
}

TEST_F(CliTest, TheWayIsSent) {
  Run({"generate", "--prompt", "a", "--way", "chunked"});
  EXPECT_EQ(router_.requests().back().way(), v1::PROMPT_WAY_CHUNKED);
  Run({"generate", "--prompt", "a"});
  EXPECT_EQ(router_.requests().back().way(), v1::PROMPT_WAY_UNSPECIFIED);
  Run({"score", "--token-ids", "5,6", "--way", "streamed"});
  EXPECT_EQ(router_.scored().back().way(), v1::PROMPT_WAY_STREAMED);
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"score", "--token-ids", "5,6", "--way", "chunked"}).status));

  const std::string file = directory_ + "/questions.jsonl";
  std::ofstream(file) << R"({"task": "t", "prompt": "p", "answer": "ok"})"
                      << "\n";
  ASSERT_TRUE(Run({"eval", file, "--perplexity", "--way", "streamed"}).status.ok());
  EXPECT_EQ(router_.requests().back().way(), v1::PROMPT_WAY_STREAMED);
  EXPECT_EQ(router_.requests().back().cache_scope(), "eval --way streamed");
  EXPECT_EQ(router_.scored().back().way(), v1::PROMPT_WAY_STREAMED);
  ASSERT_TRUE(Run({"eval", file, "--perplexity", "--way", "chunked"}).status.ok());
  EXPECT_EQ(router_.requests().back().way(), v1::PROMPT_WAY_CHUNKED);
  EXPECT_EQ(router_.scored().back().way(), v1::PROMPT_WAY_IN_PLACE);
  ASSERT_TRUE(Run({"eval", file, "--perplexity"}).status.ok());
  EXPECT_EQ(router_.requests().back().cache_scope(), "");
  EXPECT_EQ(router_.scored().back().way(), v1::PROMPT_WAY_UNSPECIFIED);
}

TEST_F(CliTest, TokenizeShowsWhiteSpace) {
  EXPECT_EQ(Run({"tokenize", "a\n"}).out, "4\t\"a\\n\"\n");
  EXPECT_EQ(Run({"detokenize", "1,2"}).out, "<1><2>\n");
}

TEST_F(CliTest, ErrorsSayWhatToDo) {
  const absl::Status loading = Run({"model"}).status;
  EXPECT_TRUE(absl::IsUnavailable(loading));
  EXPECT_THAT(std::string(loading.message()), HasSubstr("model is loading: 42 %"));
  const absl::Status absent =
      Run({"model", "--server", "unix:" + directory_ + "/absent.sock"}, /*with_server=*/false).status;
  EXPECT_TRUE(absl::IsUnavailable(absent));
  EXPECT_THAT(std::string(absent.message()), HasSubstr("cannot reach unix:"));
  EXPECT_THAT(std::string(absent.message()), HasSubstr("deploy/status"));
}

TEST_F(CliTest, EvalCountsExactMatches) {
  std::ofstream(directory_ + "/questions.jsonl") << R"({"task": "a", "prompt": "x", "answer": "ok\uFFFD"})"
                                                 << "\n"
                                                 << R"({"task": "a", "prompt": "y", "answer": "ok"})"
                                                 << "\n";
  const Result result = Run({"eval", directory_ + "/questions.jsonl", "--json", "--concurrency", "2"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(json::parse(result.out)["right"], 1);
  EXPECT_EQ(json::parse(result.out)["of"], 2);
  EXPECT_TRUE(absl::IsNotFound(Run({"eval", directory_ + "/absent"}).status));
  std::ofstream(directory_ + "/empty.jsonl") << "";
  EXPECT_THAT(Run({"eval", directory_ + "/empty.jsonl"}).status.message(), HasSubstr("it has no questions"));
}

TEST_F(CliTest, EvalComparesPerplexities) {
  const std::string questions = directory_ + "/questions.jsonl";
  const std::string earlier = directory_ + "/earlier.json";
  std::ofstream(questions) << R"({"task": "a", "prompt": "x", "answer": "ok"})"
                           << "\n"
                           << R"({"task": "b", "messages": [{"role": "user", "content": "x"}], "answer": ""})";
  EXPECT_FALSE(json::parse(Run({"eval", questions, "--json"}).out).contains("perplexity"));
  const Result first = Run({"eval", questions, "--json", "--perplexity"});
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(json::parse(first.out)["tokens"], 1) << "the answer's token, none of the prompt, none of an empty answer";
  EXPECT_EQ(json::parse(first.out)["sum_logprob"], -1.5);
  std::ofstream(earlier) << first.out;
  const Result second = Run({"eval", questions, "--perplexity", "--compare", earlier});
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_THAT(second.out, HasSubstr("all     0.0 %  0 of 2 (+0), perplexity 4.48169 (+0.00000)\n"));
  EXPECT_EQ(json::parse(Run({"eval", questions, "--perplexity", "--json", "--compare", earlier}).out)["difference"],
            json({{"right", 0}, {"perplexity", 0}}));

  const Result plain = Run({"eval", questions, "--compare", earlier});
  EXPECT_THAT(plain.status.message(), HasSubstr("--compare " + earlier + ": has 1 scored tokens of task 'a'"));
  EXPECT_THAT(plain.out, HasSubstr("0 of 2\n")) << "the scores are printed all the same";
  const size_t asked = router_.requests().size();
  std::ofstream(earlier) << "{";
  EXPECT_THAT(Run({"eval", questions, "--compare", earlier}).status.message(), HasSubstr("--compare " + earlier));
  EXPECT_TRUE(absl::IsNotFound(Run({"eval", questions, "--compare", directory_ + "/absent"}).status));
  EXPECT_EQ(router_.requests().size(), asked) << "no question is asked";
}

// The fake router always answers "ok": no choice.
TEST_F(CliTest, EvalAsksASuite) {
  const std::string questions = directory_ + "/suite.jsonl", shots = directory_ + "/shots.csv";
  std::ofstream(questions) << R"({"question": "1 + 1?", "options": ["2", "3"], "answer": "A", "subject": "math"})"
                           << "\n"
                           << R"({"question": "Who?", "choices": ["a", "b"], "answer": 1, "category": "law"})";
  const Result redux = Run({"eval", questions, "--suite", "mmlu-redux", "--json"});
  ASSERT_TRUE(redux.status.ok()) << redux.status;
  const json scores = json::parse(redux.out);
  EXPECT_EQ(scores["suite"], "mmlu-redux");
  EXPECT_EQ(scores["without_choice"], 2);
  EXPECT_EQ(scores["tasks"]["law"]["of"], 1);
  ASSERT_EQ(router_.requests().size(), 2u);
  EXPECT_EQ(router_.requests()[0].temperature(), 0);
  EXPECT_EQ(router_.requests()[0].max_tokens(), 4096u);
  EXPECT_TRUE(router_.requests()[0].has_chat());

  EXPECT_THAT(Run({"eval", questions, "--suite", "mmlu-pro"}).status.message(), HasSubstr("give --shots"));
  std::ofstream examples(shots);
  examples << "question,A,B,answer,subject,cot_content\n";
  for (int i = 0; i < 5; ++i) examples << "e,x,y,A,math,A: Let's think. The answer is (A).\n";
  examples.close();
  EXPECT_THAT(Run({"eval", questions, "--suite", "mmlu-pro", "--shots", shots}).status.message(),
              HasSubstr("--shots " + shots + ": subject 'law' has 0 examples"));
  EXPECT_EQ(router_.requests().size(), 2u) << "no question is asked";

  const std::string answers = directory_ + "/answers.jsonl";
  const Result seeds = Run({"eval", questions, "--suite", "mmlu-redux", "--temperature", "0.6", "--top-p", "0.95",
                            "--seed", "1,2,3", "--limit", "1", "--answers", answers});
  ASSERT_TRUE(seeds.status.ok()) << seeds.status;
  EXPECT_THAT(seeds.out, HasSubstr("0 of 3\n3 answers choose nothing"));
  std::set<uint64_t> used;
  for (const v1::GenerateRequest& request : router_.requests()) {
    if (request.temperature() > 0) used.insert(request.seed());
  }
  EXPECT_EQ(used, (std::set<uint64_t>{1, 2, 3}));
  std::ifstream lines(answers);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["choice"], "");
  EXPECT_THAT(Run({"eval", questions, "--suite", "mmlu-redux", "--seed", "1,2"}).status.message(),
              HasSubstr("--seed: greedy"));
  EXPECT_THAT(Run({"eval", questions, "--shots", shots}).status.message(), HasSubstr("--suite"));
}

TEST_F(CliTest, EvalWritesAnswers) {
  const std::string questions = directory_ + "/questions.jsonl";
  const std::string answers = directory_ + "/answers.jsonl";
  std::ofstream(questions) << R"({"task": "a", "prompt": "x", "answer": "ok"})";
  ASSERT_TRUE(Run({"eval", questions, "--answers", answers}).status.ok());
  const json line = json::parse(std::ifstream(answers));
  EXPECT_EQ(line, json({{"task", "a"}, {"expected", "ok"}, {"answer", "ok\uFFFD"}}));
  ASSERT_EQ(router_.requests().size(), 1u);

  const absl::Status absent = Run({"eval", questions, "--answers", directory_ + "/absent/answers"}).status;
  EXPECT_THAT(absent.message(), HasSubstr("--answers " + directory_ + "/absent/answers: cannot be written"));
  EXPECT_EQ(router_.requests().size(), 1u) << "no question is asked";

  const Result full = Run({"eval", questions, "--answers", "/dev/full"});
  EXPECT_THAT(full.status.message(), HasSubstr("--answers /dev/full: cannot be written"));
  EXPECT_THAT(full.out, HasSubstr("0 of 1")) << "the scores are printed all the same";
}

}  // namespace
}  // namespace moestro::cli
