#include "common/model/routing_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace moestro::model {
namespace {

using testing::HasSubstr;

const RoutingTraceModel kModel = {.fingerprint = "0123456789abcdef0123456789abcdef",
                                  .first_moe_layer = 1,
                                  .moe_layers = 2,
                                  .num_experts = 300,
                                  .experts_per_token = 3};

class RoutingTraceTest : public testing::Test {
 protected:
  RoutingTraceTest() { std::filesystem::create_directories(directory_); }
  ~RoutingTraceTest() override { std::filesystem::remove_all(directory_); }

  // The choices of token `i` in a layer of the model.
  static std::vector<ExpertChoice> Choices(int i, int64_t layer) {
    const auto first = static_cast<int32_t>(10 * i + layer);
    return {{first, 0.5f}, {first + 100, 0.25f}, {first + 200, 2.0f + static_cast<float>(i)}};
  }
  void WriteTwoPasses() const {
    auto writer = RoutingTraceWriter::Create(path_, kModel).value();
    const TracedToken given_up[] = {{9, 9, true}};
    writer->Begin(given_up);
    writer->Note(0, 0, Choices(9, 1));
    const TracedToken first[] = {{7, 40, true}, {7, 41, true}, {8, 3, false}};
    writer->Begin(first);
    for (const int64_t layer : {1, 2}) {
      writer->Note(layer - 1, 2, Choices(2, layer));  // in halves, the second one first
      std::vector<ExpertChoice> both = Choices(0, layer);
      std::ranges::copy(Choices(1, layer), std::back_inserter(both));
      writer->Note(layer - 1, 0, both);
    }
    ASSERT_TRUE(writer->End().ok());
    const TracedToken second[] = {{8, 4, false}};
    writer->Begin(second);
    for (const int64_t layer : {1, 2}) writer->Note(layer - 1, 0, Choices(5, layer));
    ASSERT_TRUE(writer->End().ok());
  }
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  // The result of reading all passes.
  absl::Status ReadAll() const {
    auto reader = RoutingTraceReader::Open(path_);
    if (!reader.ok()) return reader.status();
    RoutingStep step;
    while (true) {
      const absl::StatusOr<bool> more = (*reader)->Next(step);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
    }
  }

  const std::string directory_ = testing::TempDir() + "routing_trace";
  const std::string path_ = directory_ + "/trace";
};

void ExpectChoices(const RoutingStep& step, size_t token, const std::vector<ExpertChoice>& first,
                   const std::vector<ExpertChoice>& second) {
  std::vector<ExpertChoice> expected = first;
  std::ranges::copy(second, std::back_inserter(expected));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(step.choices[6 * token + i].expert, expected[i].expert) << token << " " << i;
    EXPECT_EQ(step.choices[6 * token + i].weight, expected[i].weight) << token << " " << i;
  }
}

TEST_F(RoutingTraceTest, ReadsWhatWasWritten) {
  WriteTwoPasses();
  const auto reader = RoutingTraceReader::Open(path_).value();
  EXPECT_EQ(reader->model().fingerprint, kModel.fingerprint);
  EXPECT_EQ(reader->model().first_moe_layer, 1);
  EXPECT_EQ(reader->model().moe_layers, 2);
  EXPECT_EQ(reader->model().num_experts, 300);
  EXPECT_EQ(reader->model().experts_per_token, 3);
  RoutingStep step;
  ASSERT_TRUE(reader->Next(step).value());
  ASSERT_EQ(step.tokens.size(), 3u);
  EXPECT_EQ(step.tokens[1].sequence, 7u);
  EXPECT_EQ(step.tokens[1].position, 41u);
  EXPECT_TRUE(step.tokens[1].prompt);
  EXPECT_FALSE(step.tokens[2].prompt);
  ASSERT_EQ(step.choices.size(), 18u);
  for (int i = 0; i < 3; ++i) ExpectChoices(step, static_cast<size_t>(i), Choices(i, 1), Choices(i, 2));
  ASSERT_TRUE(reader->Next(step).value());
  ASSERT_EQ(step.tokens.size(), 1u);
  ExpectChoices(step, 0, Choices(5, 1), Choices(5, 2));
  EXPECT_FALSE(reader->Next(step).value());
}

// The bytes of ROUTING_TRACE.md.
TEST_F(RoutingTraceTest, HasTheDocumentedBytes) {
  WriteTwoPasses();
  const std::string bytes = Bytes();
  ASSERT_EQ(bytes.size(), 64u + (4 + 3 * (12 + 24)) + (4 + 12 + 24));
  EXPECT_EQ(bytes.substr(0, 16), std::string("MOEROUTE\1\0\0\0\1\0\0\0", 16));
  EXPECT_EQ(bytes.substr(16, 16), std::string("\2\0\0\0\x2c\1\0\0\3\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(bytes.substr(32, 32), kModel.fingerprint);
  EXPECT_EQ(bytes.substr(64, 16), std::string("\3\0\0\0\7\0\0\0\x28\0\0\0\1\0\0\0", 16));
  EXPECT_EQ(bytes.substr(64 + 4 + 36, 8), std::string("\1\0\0\x3f\x65\0\x80\x3e", 8));  // 1 with 0.5, 101 with 0.25
}

TEST_F(RoutingTraceTest, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(ReadAll().message(), HasSubstr("cannot be read"));
  Write("no trace");
  EXPECT_THAT(ReadAll().message(), HasSubstr("is not a routing trace"));
  WriteTwoPasses();
  const std::string good = Bytes();
  for (size_t cut = 64; cut < good.size(); ++cut) {
    Write(good.substr(0, cut));
    const bool between = cut == 64 || cut == good.size() - 40;
    EXPECT_EQ(ReadAll().ok(), between) << cut;
  }
  Write(good.substr(0, good.size() - 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("pass 1: the file is truncated"));
  const auto with = [&](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return bytes;
  };
  Write(with(8, 2));
  EXPECT_THAT(ReadAll().message(), HasSubstr("version 2"));
  Write(with(16, 0));
  EXPECT_THAT(ReadAll().message(), HasSubstr("0 layers of experts"));
  Write(with(67, 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("pass 0: a pass of 16777219 tokens"));
  Write(with(64 + 4 + 36 + 1, 2));
  EXPECT_THAT(ReadAll().message(), HasSubstr("expert 513 of 300"));
  Write(with(64 + 4 + 36 + 4, 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("ascending"));
}

TEST_F(RoutingTraceTest, SaysWhatCannotBeWritten) {
  const auto create = [&](const std::string& path, const RoutingTraceModel& model) {
    return RoutingTraceWriter::Create(path, model).status();
  };
  EXPECT_THAT(create(directory_ + "/none/trace", kModel).message(), HasSubstr("none/trace: cannot be written"));
  RoutingTraceModel dense = kModel;
  dense.moe_layers = 0;
  EXPECT_EQ(create(path_, dense).code(), absl::StatusCode::kInvalidArgument);
  auto writer = RoutingTraceWriter::Create("/dev/full", kModel);
  EXPECT_THAT(writer.status().message(), HasSubstr("/dev/full: cannot be written"));
}

}  // namespace
}  // namespace moestro::model
