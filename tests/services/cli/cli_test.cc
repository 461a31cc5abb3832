// The commands end to end: parsed flags, a fake router over a real socket, and what is printed.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/model/routing_trace.h"
#include "common/platform/instance.h"
#include "common/platform/shared_memory.h"
#include "common/process/process.h"
#include "common/rpc/server.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers every prompt with "ok" and an incomplete character, and remembers what it was asked.
class FakeRouter final : public v1::InferenceService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    v1::GenerateResponse reply;
    reply.mutable_started()->set_request_id("r1");
    reply.mutable_started()->set_path(v1::PREFILL_PATH_SPLIT);
    reply.mutable_started()->set_path_reason("3 new tokens >= 2");
    writer->Write(reply);
    for (int i = 0; i < 2; ++i) {
      v1::Token& token = *reply.mutable_tokens()->add_tokens();
      token.set_id(10 + i);
      token.set_logprob(-0.25f);
      reply.mutable_tokens()->set_text(i == 0 ? "ok" : "\xEF\xBF\xBD");
      writer->Write(reply);
      reply.Clear();
    }
    reply.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
    reply.mutable_finished()->mutable_usage()->set_prompt_tokens(3);
    reply.mutable_finished()->mutable_usage()->set_completion_tokens(2);
    reply.mutable_finished()->mutable_usage()->set_cached_tokens(1);
    reply.mutable_finished()->set_path(v1::PREFILL_PATH_CHUNKED);
    reply.mutable_finished()->set_prefill_seconds(0.25);
    reply.mutable_finished()->set_time_to_first_token_seconds(0.5);
    reply.mutable_finished()->set_total_seconds(1);
    writer->Write(reply);
    return grpc::Status::OK;
  }
  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest* request,
                     grpc::ServerWriter<v1::ScoreResponse>* writer) override {
    v1::ScoreResponse reply;
    for (int i = 0; i < request->token_ids().ids_size(); ++i) {
      v1::PositionScore& score = *reply.add_scores();
      score.set_id(request->token_ids().ids(i));
      if (i > 0) score.set_logprob(-1.5f);
      for (uint32_t j = 0; i > 0 && j < request->top(); ++j) score.add_top()->set_id(7);
    }
    writer->Write(reply);
    return grpc::Status::OK;
  }
  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest*, v1::TokenizeResponse* reply) override {
    reply->add_ids(4);
    reply->add_pieces("a\n");
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* reply) override {
    for (const int32_t id : request->ids()) reply->set_text(reply->text() + "<" + std::to_string(id) + ">");
    return grpc::Status::OK;
  }
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::GetModelResponse*) override {
    return {grpc::StatusCode::UNAVAILABLE, "model is loading: 42 %"};
  }

  std::vector<v1::GenerateRequest> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
};

class CliTest : public ::testing::Test {
 protected:
  CliTest() : directory_(::testing::TempDir() + "cli_" + std::to_string(getpid())) {
    std::filesystem::create_directories(directory_);
    server_ = *RpcServer::Start({address()}, {{v1::InferenceService::service_full_name(), &router_}});
  }
  ~CliTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string address() const { return "unix:" + directory_ + "/router.sock"; }

  struct Result {
    absl::Status status;
    std::string out;
    std::string err;
  };

  // Runs `moestro <arguments>`; those that talk to the router get its address.
  Result Run(std::vector<std::string> arguments, bool with_server = true) {
    CLI::App app;
    app.require_subcommand(1);
    std::vector<Command> commands;
    AddGenerateCommand(app, commands);
    AddChatCommand(app, commands);
    AddScoreCommand(app, commands);
    AddTextCommands(app, commands);
    AddModelCommand(app, commands);
    AddInspectCommand(app, commands);
    AddSegmentsCommands(app, commands);
    AddMakeModelCommand(app, commands);
    AddRoutingCommand(app, commands);
    AddPlanCommand(app, commands);
    AddSimulateCommand(app, commands);
    AddBenchCommand(app, commands);
    AddEvalCommand(app, commands);
    if (with_server) arguments.insert(arguments.end(), {"--server", address()});
    std::reverse(arguments.begin(), arguments.end());  // how CLI11 wants a vector
    Result result;
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& error) {
      result.status = absl::InvalidArgumentError(error.what());
      return result;
    }
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    for (const Command& command : commands) {
      if (command.app->parsed()) result.status = command.run();
    }
    result.out = ::testing::internal::GetCapturedStdout();
    result.err = ::testing::internal::GetCapturedStderr();
    return result;
  }

  const std::string directory_;
  FakeRouter router_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CliTest, GenerateStreamsTextAndSumsUp) {
  const Result result = Run({"generate", "--prompt", "hello", "--max-tokens", "5", "--temperature", "0"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.out, "ok\xEF\xBF\xBD\n");
  EXPECT_THAT(result.err, HasSubstr("3 prompt (1 cached) + 2 tokens (stop), first after 0.500 s, 2.0 tok/s, path split "
                                    "(3 new tokens >= 2), then chunked"));
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
  EXPECT_EQ(answer["usage"]["cached_tokens"], 1);
  EXPECT_EQ(answer["timings"]["prefill_seconds"], 0.25);
  EXPECT_EQ(answer["timings"]["tokens_per_second"], 2.0);
  EXPECT_EQ(router_.requests().at(0).token_ids().ids_size(), 3);
  EXPECT_EQ(router_.requests().at(0).stop_ids_size(), 2);
  EXPECT_EQ(router_.requests().at(0).seed(), 7u);
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
  EXPECT_THAT(Run({"eval", directory_ + "/empty.jsonl"}).status.message(), HasSubstr("there are no questions in it"));
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

// With the true shapes: it would take minutes if it measured first.
TEST_F(CliTest, BenchFailsBeforeItMeasures) {
  const Result result = Run({"bench", "--json", directory_ + "/absent/bench.json"}, false);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("--json: cannot write"));
  EXPECT_EQ(result.out, "");
}

TEST_F(CliTest, SegmentsListAndPrune) {
  const std::string instance = "cli-test-" + std::to_string(getpid());
  const std::string dead = KvPoolName(instance, 1);
  const std::string alive = KvPoolName(instance, 2);
  { ASSERT_TRUE(SharedMemory::Create(dead, 4096).ok()); }
  {
    const auto owner = SharedMemory::Create(alive, 8192);
    ASSERT_TRUE(owner.ok()) << owner.status();
    const json list = json::parse(Run({"segments", "list", "--instance", instance, "--json"}, false).out);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0]["name"], dead);
    EXPECT_EQ(list[0]["owner_alive"], false);
    EXPECT_EQ(list[1]["owner_alive"], true);
    EXPECT_EQ(list[1]["bytes"], 8192);
    const Result prune = Run({"segments", "prune", "--instance", instance}, false);
    EXPECT_EQ(prune.out, "removed " + dead + " (4.00 KiB)\n1 removed, 4.00 KiB freed\n");
    EXPECT_EQ(json::parse(Run({"segments", "list", "--instance", instance, "--json"}, false).out).size(), 1u);
  }
  ASSERT_TRUE(SharedMemory::Unlink(alive).ok());
}

TEST_F(CliTest, SegmentsThatOthersMayOpenAreLeftAlone) {
  const std::string instance = "cli-test-" + std::to_string(getpid());
  const std::string foreign = KvPoolName(instance, 3);
  { ASSERT_TRUE(SharedMemory::Create(foreign, 4096).ok()); }
  const std::string path = "/dev/shm/" + foreign;
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(Run({"segments", "list", "--instance", instance, "--json"}, false).out, "[]\n");
  const Result prune = Run({"segments", "prune", "--instance", instance}, false);
  EXPECT_TRUE(prune.status.ok()) << prune.status;
  EXPECT_EQ(prune.out, "0 removed, 0 B freed\n");
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  ASSERT_TRUE(SharedMemory::Unlink(foreign).ok());
}

TEST_F(CliTest, MakesAModelAndInspectsIt) {
  const std::string out = directory_ + "/tiny";
  const Result made = Run({"make-model", "--preset", "tiny", "--out", out}, false);
  ASSERT_TRUE(made.status.ok()) << made.status;
  EXPECT_THAT(made.out, HasSubstr("of fp8 tensors in"));
  const Result inspected = Run({"inspect", out, "--json"}, false);
  ASSERT_TRUE(inspected.status.ok()) << inspected.status;
  const json found = json::parse(inspected.out);
  EXPECT_EQ(found["family"], "deepseek_v3");
  EXPECT_GT(found["parameters"], 1000000);
  EXPECT_GT(found["segment_bytes"], found["bytes_by_kind"]["routed experts"]);
  const json alone = json::parse(Run({"inspect", out + "/config.json", "--json"}, false).out);
  EXPECT_EQ(alone["parameters"], found["parameters"]);
  EXPECT_EQ(alone["segment_bytes"], found["segment_bytes"]);
  EXPECT_THAT(Run({"inspect", out}, false).out, HasSubstr("parameters_by_kind:\n"));
  EXPECT_TRUE(absl::IsAlreadyExists(Run({"make-model", "--out", out}, false).status));
}

// A warning names the directory.
TEST_F(CliTest, InspectsADirectoryWhoseNameIsNotUtf8) {
  const std::string out = directory_ + "/tiny \xFF";
  ASSERT_TRUE(Run({"make-model", "--preset", "tiny", "--out", out}, false).status.ok());
  const std::string header = R"({"extra": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  std::ofstream(out + "/extra.safetensors")
      << std::string{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0} << header << "data";
  json index = json::parse(std::ifstream(out + "/model.safetensors.index.json"));
  index["weight_map"]["extra"] = "extra.safetensors";
  std::ofstream(out + "/model.safetensors.index.json") << index;
  for (const bool as_json : {false, true}) {
    std::vector<std::string> arguments = {"inspect", out};
    if (as_json) arguments.push_back("--json");
    const Result result = Run(arguments, false);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_THAT(result.out, HasSubstr("tiny \xEF\xBF\xBD: 1 tensor(s)"));
  }
}

TEST_F(CliTest, InspectNeedsSomethingToInspect) {
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"inspect"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", directory_ + "/absent"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", "--segment", "moestro.absent"}, false).status));
}

TEST_F(CliTest, RoutingSummarisesATrace) {
  const std::string path = directory_ + "/trace";
  const auto writer =
      RoutingTraceWriter::Create(
          path, {.fingerprint = "f", .first_moe_layer = 1, .moe_layers = 1, .num_experts = 20, .experts_per_token = 2})
          .value();
  const TracedToken tokens[] = {{0, 3, true}, {1, 8, false}};
  writer->Begin(tokens);
  writer->Note(1, 0, std::vector<ExpertChoice>{{3, 1}, {4, 1}, {3, 1}, {5, 1}});
  ASSERT_TRUE(writer->End().ok());
  const Result result = Run({"routing", path, "--json"}, /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("passes"), 1);
  EXPECT_EQ(out.at("prompt_tokens"), 1);
  EXPECT_EQ(out.at("generated_tokens"), 1);
  EXPECT_EQ(out.at("different_experts_per_pass_and_layer"), 3.0);
  EXPECT_EQ(out.at("share_of_the_hottest_tenth"), 0.75) << "experts 3 and 4: three of four choices";
  writer->Begin(std::span(tokens).last(1));
  writer->Note(1, 0, std::vector<ExpertChoice>{{4, 1}, {5, 1}});
  ASSERT_TRUE(writer->End().ok());
  const Result replayed =
      Run({"routing", path, "--cache-experts", "0,2", "--cache-loads", "2", "--prompts", "--json"}, false);
  ASSERT_TRUE(replayed.status.ok()) << replayed.status;
  const json caches = json::parse(replayed.out).at("caches");
  EXPECT_EQ(caches.at(0).at("hit_rate"), 0);
  EXPECT_EQ(caches.at(1).at("hit_rate"), 0.2) << "3, 4, 5, then 4 of the two held and 5";
  EXPECT_THAT(Run({"routing", path, "--cache-experts", "21"}, false).status.message(), HasSubstr("--cache-experts"));
  EXPECT_THAT(Run({"routing", directory_ + "/none"}, false).status.message(), HasSubstr("none: cannot be read"));
}

// Two files: of the same kind of machine, with a row that fell, of another CPU, and one that is no report.
TEST_F(CliTest, BenchComparesTwoReports) {
  const std::string committed = "loadtest/results/2026-11-22-xeon-amx-2-cores/bench.json";
  const auto run = [&](const json& newer, std::vector<std::string> flags = {}) {
    const std::string path = directory_ + "/newer.json";
    std::ofstream(path) << newer;
    flags.insert(flags.begin(), {"bench", "--compare", committed, "--against", path});
    return Run(std::move(flags), /*with_server=*/false);
  };
  json newer = json::parse(std::ifstream(committed));
  const Result same = run(newer);
  EXPECT_TRUE(same.status.ok()) << same.status;
  EXPECT_THAT(same.out, AllOf(HasSubstr("revision 4a2ffd1"), HasSubstr("0 fell, 0 rose, ")));

  json& row = newer["sections"][6]["rows"][0];
  ASSERT_THAT(row["name"].get<std::string>(), HasSubstr("GQA"));
  for (const char* key : {"median", "min", "max"}) row["ratio"][key] = row["ratio"][key].get<double>() / 2;
  const std::string out = directory_ + "/comparison.json";
  const Result fell = run(newer, {"--json", out});
  EXPECT_EQ(ExitCode(fell.status), 1);
  EXPECT_THAT(fell.status.message(), HasSubstr("1 row fell since " + committed));
  EXPECT_THAT(fell.out, HasSubstr("Fell:\n  attention | GQA, 64 heads over 8 x 128, 32768 tokens, 2 threads: "
                                  "ratio to read bandwidth 0.73 -> 0.36, -50.0 %"));
  EXPECT_EQ(json::parse(std::ifstream(out)).at("fell"), 1);

  newer["machine"]["cpu_model"] = "Other CPU";
  const Result other = run(newer);
  EXPECT_EQ(ExitCode(other.status), 2);
  EXPECT_THAT(other.status.message(), AllOf(HasSubstr("--compare " + committed), HasSubstr("another kind of CPU")));

  EXPECT_THAT(run("cut off").status.message(), HasSubstr("newer.json: not a report of `moestro bench`"));
  EXPECT_EQ(ExitCode(Run({"bench", "--compare", directory_ + "/none.json", "--quick"}, false).status), 2);
  EXPECT_THAT(run(newer, {"--rounds", "5"}).status.message(), HasSubstr("excludes"));
  EXPECT_THAT(Run({"bench", "--against", committed}, false).status.message(), HasSubstr("requires --compare"));
}

// Before minutes of measuring, not after them.
TEST_F(CliTest, BenchRefusesAnotherCpusReportBeforeItMeasures) {
  json older = json::parse(std::ifstream("loadtest/results/2026-11-22-xeon-amx-2-cores/bench.json"));
  older["machine"]["cpu_model"] = "Other CPU";
  const std::string path = directory_ + "/older.json";
  std::ofstream(path) << older;
  const Result result = Run({"bench", "--compare", path}, /*with_server=*/false);
  EXPECT_THAT(result.status.message(), HasSubstr("another kind of CPU"));
  EXPECT_THAT(result.err, Not(HasSubstr("[1/")));
}

// What is charged are the kernels that exist, which multiply BF16 numbers: 32K tokens take longer than the paper's 30
// seconds.
TEST_F(CliTest, SimulateChargesTheKernelsThatExist) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "deploy/hardware/rtx5090-epyc9355.json", "--tokens", "4096,32768"});
    return Run(std::move(flags), /*with_server=*/false);
  };
  const auto seconds = [&](const std::string& activations, const std::string& together) {
    const Result result = run({"--activations", activations, "--experts-together", together, "--json"});
    EXPECT_TRUE(result.status.ok()) << result.status;
    return json::parse(result.out).at("prefill").at(1).at("ttft_seconds").get<double>();
  };
  const Result result = run({"--json"});
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("activations"), "bf16");
  ASSERT_EQ(out.at("prefill").size(), 2u);
  EXPECT_EQ(out["prefill"][0].at("bound"), "transfer");
  EXPECT_EQ(out["prefill"][0].at("passes"), 1);
  const double built = out["prefill"][1].at("ttft_seconds");
  EXPECT_GT(built, 30);
  EXPECT_LE(out["prefill"][1].at("wall_over_longer"), 1.1);
  EXPECT_EQ(built, seconds("bf16", "16"));
  EXPECT_LT(built, seconds("bf16", "1"));
  EXPECT_LT(seconds("fp8", "16"), built);
  EXPECT_THAT(run({}).out, HasSubstr("products of BF16 numbers, at the GPU's BF16 rate, as the kernels here"));
  EXPECT_THAT(run({"--activations", "fp8"}).out, HasSubstr("no kernel is built that does that"));
}

// Both ways stand beside the paper's figures, and what was fitted is no prediction.
TEST_F(CliTest, SimulateComparesWithThePaper) {
  const auto run = [&](const std::string& flag) {
    return Run({"simulate", "deploy/hardware/rtx5090-epyc9355.json", "--tokens", "32768", "--paper", flag},
               /*with_server=*/false);
  };
  const Result result = run("--json");
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json claims = json::parse(result.out).at("paper");
  ASSERT_EQ(claims.size(), 6u);
  EXPECT_EQ(claims[0].at("paper_way").at("fitted"), true);
  EXPECT_FALSE(claims[0]["paper_way"].contains("deviation"));
  EXPECT_TRUE(claims[0].at("built").contains("deviation"));
  // 32K tokens, the highest throughput: near the paper in its way, not in ours.
  for (const int i : {1, 2}) {
    EXPECT_NEAR(claims[i].at("paper_way").at("deviation").get<double>(), 0, 0.15) << i;
  }
  EXPECT_GT(claims[1].at("built").at("simulated"), claims[1].at("paper"));
  EXPECT_LT(claims[2].at("built").at("simulated"), claims[2].at("paper"));
  // Experts that are computed together need more than two slots.
  EXPECT_TRUE(claims[3].at("built").at("simulated").is_null());
  EXPECT_GT(claims[3].at("paper_way").at("simulated"), 32768);
  EXPECT_THAT(run("--activations=bf16").out, AllOf(HasSubstr("fitted"), HasSubstr("for which no kernel is built")));
}

// Lengths beyond a model's context are left out where nobody asked for them, and refused where somebody did.
TEST_F(CliTest, SimulateStaysWithinAModelsContext) {
  const std::string machine = "deploy/hardware/rtx5090-epyc9355.json";
  for (const char* ranks : {"1", "2"}) {
    const Result result = Run({"simulate", machine, "--model", "qwen3-235b", "--ranks", ranks, "--json"}, false);
    ASSERT_TRUE(result.status.ok()) << result.status;
    const json rows = json::parse(result.out).at("prefill");
    ASSERT_EQ(rows.size(), 5u);
    EXPECT_EQ(rows.back().at("tokens"), 32768);
  }
  EXPECT_THAT(Run({"simulate", machine, "--model", "qwen3-235b", "--tokens", "49152"}, false).status.message(),
              HasSubstr("--tokens 49152: must be 1 to 40960"));
}

TEST_F(CliTest, SimulateRefusesLimitsThatNoScheduleHas) {
  const auto run = [&](const std::string& ranks, const std::string& flag, const std::string& value) {
    return Run({"simulate", "deploy/hardware/rtx5090-epyc9355.json", "--tokens", "4096", "--ranks", ranks, flag, value},
               /*with_server=*/false);
  };
  for (const char* ranks : {"1", "2"}) {
    for (const char* slots : {"-1", "1", "4097"}) {
      EXPECT_THAT(run(ranks, "--ring-slots", slots).status.message(),
                  HasSubstr(std::string("--ring-slots ") + slots + ": must be 2 to 4096"));
    }
    EXPECT_TRUE(run(ranks, "--ring-slots", "2").status.ok());
    EXPECT_TRUE(run(ranks, "--ring-slots", "0").status.ok());
    EXPECT_THAT(run(ranks, "--dense-bytes", "15EiB").status.message(), HasSubstr("--dense-bytes"));
  }
}

TEST_F(CliTest, SimulateDecodeComparesWithThePaper) {
  const std::string machine = "deploy/hardware/rtx5090-epyc9355.json";
  const Result result =
      Run({"simulate", machine, "--decode", "--batch", "1,6", "--context", "1024", "--paper", "--json"},
          /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  ASSERT_EQ(out.at("decode").size(), 2u);
  EXPECT_FALSE(out["decode"][0].contains("two_batches_seconds"));
  EXPECT_LT(out["decode"][1].at("two_batches_seconds"), out["decode"][1].at("one_batch_seconds"));
  ASSERT_EQ(out.at("paper").size(), 7u);
  EXPECT_EQ(out["paper"][0].at("fitted"), true);
  EXPECT_FALSE(out["paper"][0].contains("deviation"));
  for (size_t i = 1; i < 7; ++i) EXPECT_NEAR(out["paper"][i].at("deviation").get<double>(), 0, 0.1) << i;
  EXPECT_THAT(Run({"simulate", machine, "--decode", "--context", "0"}, false).status.message(), HasSubstr("--context"));
  EXPECT_THAT(Run({"simulate", "deploy/hardware/h200.json", "--decode"}, false).status.message(),
              HasSubstr("H200: decode needs 'cpu_memory_bytes_per_second'"));
}

// Two devices, in the paper's way: a layer in either way, whole prompts, and 45K tokens, each within 15 % of the paper;
// the share of standard EP's exchanges in its layer a little above that. As built 45K tokens take longer than its 30 s.
TEST_F(CliTest, SimulateTwoDevicesComparesWithThePaper) {
  const Result result = Run(
      {"simulate", "deploy/hardware/rtx5090-epyc9355.json", "--ranks", "2", "--tokens", "20480", "--paper", "--json"},
      /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  ASSERT_EQ(out.at("prefill").size(), 1u);
  EXPECT_EQ(out["prefill"][0].at("ways").size(), 3u);
  ASSERT_EQ(out.at("paper").size(), 6u);
  for (const json& claim : out["paper"]) {
    const bool at_most = claim.at("what").get<std::string>().find("(at most)") != std::string::npos;
    const bool share = claim.at("what").get<std::string>().find("dispatch and combine") != std::string::npos;
    const double deviation = claim.at("paper_way").at("deviation");
    EXPECT_LE(deviation, at_most ? 0 : share ? 0.2 : 0.15) << claim;
    EXPECT_GE(deviation, at_most ? -1 : -0.15) << claim;
  }
  EXPECT_GT(out["paper"][5].at("built").at("deviation"), 0);
}

// 64K tokens do not fit two devices with standard EP, which gathers a row for each of its experts; one device and
// SmallEP take them.
TEST_F(CliTest, SimulateTwoDevicesSkipsTheWayThatDoesNotFit) {
  const auto run = [&](const std::string& machine, bool as_json) {
    std::vector<std::string> arguments = {"simulate", machine, "--ranks", "2", "--tokens", "65536"};
    if (as_json) arguments.push_back("--json");
    return Run(std::move(arguments), /*with_server=*/false);
  };
  const std::string machine = "deploy/hardware/rtx5090-epyc9355.json";
  const Result result = run(machine, true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  ASSERT_EQ(out.at("prefill").size(), 1u);
  const json& ways = out["prefill"][0].at("ways");
  ASSERT_EQ(ways.size(), 2u);
  EXPECT_EQ(ways[0].at("way"), "one device");
  EXPECT_EQ(ways[1].at("way"), "CP2+SmallEP2");
  EXPECT_GT(ways[1].at("speedup"), 1);
  ASSERT_EQ(out.at("skipped").size(), 1u);
  EXPECT_EQ(out["skipped"][0].at("tokens"), 65536);
  EXPECT_EQ(out["skipped"][0].at("way"), "CP2+EP2");

  const Result text = run(machine, false);
  ASSERT_TRUE(text.status.ok()) << text.status;
  EXPECT_THAT(text.out, HasSubstr("65536  skipped: CP2+EP2: "));
  EXPECT_THAT(text.out, HasSubstr("bytes of device memory"));

  json small = json::parse(std::ifstream(machine));
  small["gpu_memory_bytes"] = 2e9;
  const std::string path = directory_ + "/small.json";
  std::ofstream(path) << small;
  EXPECT_EQ(run(path, false).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CliTest, PlanExplainsWhatDevicesExchange) {
  const Result result = Run({"plan", "--explain", "dslp", "--ranks", "2", "--tokens", "20480", "--json"}, false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("break_even_ranks"), 8);
  EXPECT_EQ(out.at("small_ep").at("dispatch_sent_bytes"), 10240 * (2 * 7168 + 8 * 8));
  EXPECT_EQ(out.at("small_ep").at("combine_sent_bytes"), 10240 * 4 * 7168);
  EXPECT_EQ(out.at("standard_ep").at("dispatch_sent_bytes"), 10240 * 8 / 2 * (2 * 7168 + 4) + 8);
  EXPECT_NEAR(out.at("small_over_standard").get<double>(), 2.0 / 8, 0.001);

  const Result text = Run({"plan", "--explain", "dslp", "--model", "kimi-k2"}, false);
  ASSERT_TRUE(text.status.ok()) << text.status;
  EXPECT_THAT(text.out, HasSubstr("Break-even: S <= A = 8"));
  EXPECT_THAT(Run({"plan", "--explain", "dslp", "--model", directory_ + "/none"}, false).status.message(),
              HasSubstr("--model"));
  EXPECT_THAT(Run({"plan", "--explain", "dslp", "--ranks", "1"}, false).status.message(), HasSubstr("--ranks"));
}

// With 6 GB a device has room for 4K tokens of DeepSeek-V3, not for the 20K of which a layer is shown with standard EP.
TEST_F(CliTest, SimulateTwoDevicesSkipsTheWayInWhichALayerDoesNotFit) {
  json machine = json::parse(std::ifstream("deploy/hardware/rtx5090-epyc9355.json"));
  machine["gpu_memory_bytes"] = 6e9;
  const std::string path = directory_ + "/machine.json";
  std::ofstream(path) << machine;
  const Result result = Run({"simulate", path, "--ranks", "2", "--tokens", "4096", "--json"}, false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("prefill").size(), 1u);
  EXPECT_EQ(out.at("layer").size(), 2u);  // one device, in several passes, and SmallEP
  ASSERT_EQ(out.at("skipped").size(), 1u);
  EXPECT_EQ(out["skipped"][0].at("tokens"), 20480);
  EXPECT_EQ(out["skipped"][0].at("way"), "CP2+EP2");
  EXPECT_THAT(Run({"simulate", path, "--ranks", "2", "--tokens", "4096"}, false).out,
              HasSubstr("20480  skipped: a layer with experts: "));
}

// What can be changed is named as this command names it.
TEST_F(CliTest, SimulateSaysHowAPromptWouldFit) {
  const auto run = [&](const std::string& ranks) {
    return Run({"simulate", "deploy/hardware/rtx5090-epyc9355.json", "--ring-slots", "4096", "--ranks", ranks}, false);
  };
  for (const char* ranks : {"1", "2"}) {
    const std::string message(run(ranks).status.message());
    EXPECT_THAT(message, HasSubstr("gpu_memory_bytes in the hardware file"));
    EXPECT_THAT(message, HasSubstr("--tokens, --dense-bytes"));
    EXPECT_THAT(message, Not(HasSubstr("--device")));
  }
}

TEST_F(CliTest, SimulateRefusesFlagsThatItWouldNotHeed) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "deploy/hardware/rtx5090-epyc9355.json"});
    return std::string(Run(std::move(flags), /*with_server=*/false).status.message());
  };
  for (const char* flag : {"--tokens", "--ranks", "--ring-slots", "--dense-bytes", "--min-pass-tokens",
                           "--experts-together", "--trace-file"}) {
    EXPECT_THAT(run({"--decode", flag, "2"}), AllOf(HasSubstr(flag), HasSubstr("excludes")));
  }
  EXPECT_THAT(run({"--decode", "--expert-spread", "0.1"}), HasSubstr("excludes"));
  EXPECT_THAT(run({"--decode", "--activations", "fp8"}), HasSubstr("excludes"));
  const std::string trace = directory_ + "/trace.json";
  EXPECT_THAT(run({"--ranks", "2", "--trace-file", trace}),
              HasSubstr("--trace-file: the timeline is that of one device"));
  EXPECT_THAT(run({"--ranks", "2", "--expert-spread", "0.1"}), HasSubstr("--expert-spread: for one device only"));
  EXPECT_EQ(run({"--tokens", "4096", "--ranks", "1", "--trace-file", trace}), "");
  EXPECT_TRUE(std::filesystem::exists(trace));
}

TEST_F(CliTest, SimulateNamesWhatIsWrongWithTheMachine) {
  const std::string path = directory_ + "/machine.json";
  std::ofstream(path) << R"({"name": "x", "gpu_memory_bytes": -1})";
  EXPECT_THAT(Run({"simulate", path}, false).status.message(), HasSubstr("'gpu_memory_bytes' must be a positive"));
  std::ofstream(path) << R"({"name": "x", "gpu_memory": 1})";
  EXPECT_THAT(Run({"simulate", path}, false).status.message(), HasSubstr("unknown field 'gpu_memory'"));
  std::ofstream(path) << R"({"name": "x"})";
  EXPECT_THAT(Run({"simulate", path}, false).status.message(), HasSubstr("is missing"));
  std::ofstream(path) << "not JSON";
  EXPECT_THAT(Run({"simulate", path}, false).status.message(), HasSubstr("machine.json"));
}

}  // namespace
}  // namespace moestro
