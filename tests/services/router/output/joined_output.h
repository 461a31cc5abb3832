// What a client that joins all deltas of an answer has at its end.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "services/router/output/output_parser.h"

namespace moestro::router {

struct JoinedOutput {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
    bool operator==(const Call&) const = default;
  };
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;

  void Add(const OutputDelta& delta) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      const bool first = call.index == calls.size();
      EXPECT_EQ(first, !call.id.empty());
      EXPECT_EQ(first, !call.name.empty());
      if (first) calls.push_back({call.id, call.name, ""});
      ASSERT_EQ(call.index + 1, calls.size());
      calls.back().arguments += call.arguments;
    }
  }

  bool operator==(const JoinedOutput&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const JoinedOutput& output) {
  out << "content: " << output.content << "\nreasoning: " << output.reasoning;
  for (const JoinedOutput::Call& call : output.calls) {
    out << "\ncall " << call.id << " " << call.name << " " << call.arguments;
  }
  return out;
}

inline JoinedOutput Parse(OutputParser& parser, const std::vector<std::string>& pieces,
                          FinishReason reason = FinishReason::kStop) {
  JoinedOutput output;
  for (const std::string& piece : pieces) output.Add(parser.Push(piece));
  output.Add(parser.Finish(reason));
  return output;
}

}  // namespace moestro::router
