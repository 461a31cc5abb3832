// libFuzzer: answers of models. The first byte, a letter, chooses the syntax of calls; the second, how the answer is
// read. Whatever a model writes, it means the same however it is cut, and arguments that no model wrote as JSON are
// JSON.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "services/router/output/output_parser.h"

namespace moestro::router {
namespace {

struct Model {
  const char* family;
  const char* chat_template;
};
constexpr Model kModels[] = {{"qwen3_moe", "<function=</think>"},
                             {"glm4_moe", "<arg_key></think>"},
                             {"minimax_m2", "<minimax:tool_call></think>"},
                             {"qwen3_moe", "<tool_call></think>"},
                             {"kimi_k2", "<|tool_call_begin|></think>"},
                             {"deepseek_v3", "<｜tool▁call</think>"},
                             {"mixtral", "[TOOL_CALLS]"},
                             {"llama", "<|python_tag|>"},
                             {"gpt_oss", ""}};
constexpr size_t kInTags = 3;  // the first of them

constexpr char kTools[] = R"([
  {"function": {"name": "f", "parameters": {"properties": {"a": {"type": "object"}, "b": {"$ref": "#/$defs/b"}, "c": {}},
                                            "$defs": {"b": {"type": ["array", "integer"]}}}}},
  {"function": {"name": "g"}}])";

struct Call {
  std::string id;
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};
struct Answer {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Answer&) const = default;
};

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

Answer Read(const OutputFormat& format, const ParserOptions& options, std::string_view text, size_t piece_bytes) {
  const auto parser = NewParser(format, options);
  Answer answer;
  const auto add = [&](const OutputDelta& delta) {
    answer.content += delta.content;
    answer.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index == answer.calls.size())
        answer.calls.push_back({.id = call.id, .name = call.name, .arguments = {}});
      Require(call.index + 1 == answer.calls.size(), "a piece of no call");
      answer.calls.back().arguments += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += piece_bytes) add(parser->Push(text.substr(at, piece_bytes)));
  add(parser->Finish(FinishReason::kStop));
  return answer;
}

}  // namespace
}  // namespace moestro::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moestro::router;
  if (size < 2) return 0;
  const size_t index = data[0] % std::size(kModels);
  const uint8_t flags = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const OutputFormat format = FindOutputFormat(kModels[index].family, kModels[index].chat_template, {"<|end|>"});
  const ParserOptions options{.reasoning_open = (flags & 1) != 0,
                              .parse_tools = (flags & 2) == 0,
                              .tools = kTools,
                              .several_calls = (flags & 4) == 0,
                              .lost_tags = (flags & 8) == 0};
  const Answer whole = Read(format, options, text, size);
  Require(Read(format, options, text, 1) == whole, "bytes mean something else than the whole");
  Require(Read(format, options, text, 5) == whole, "pieces mean something else than the whole");
  for (const Call& call : whole.calls) {
    Require(!call.id.empty() && !call.name.empty(), "a call without an id or a name");
    if (index < kInTags) Require(nlohmann::json::accept(call.arguments), "arguments that are no JSON");
  }
  return 0;
}
