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

RoutingTraceModel WithScores() {
  RoutingTraceModel model = kModel;
  model.scores_per_token = 2;
  model.predicted_layers = 1;
  return model;
}

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
  // One pass of two tokens, whose second layer the first one predicted.
  void WriteScores() const {
    auto writer = RoutingTraceWriter::Create(path_, WithScores()).value();
    const TracedToken tokens[] = {{1, 5, false}, {2, 6, false}};
    writer->Begin(tokens);
    for (const int64_t layer : {0, 1}) {
      for (const int row : {0, 1}) {
        writer->Note(layer, row, Choices(row, layer));
        writer->NoteOthers(layer, row, std::vector<ExpertChoice>{{50 + row, 0.5f}, {299, 0.25f}});
      }
    }
    writer->NotePrediction(1, 1, 1, Choices(1, 1));
    writer->NotePrediction(1, 0, 1, Choices(7, 1));  // replaced
    writer->NotePrediction(1, 0, 1, Choices(0, 1));
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

  const std::string directory_ = testing::TempDir() + "routing_trace-" + std::to_string(getpid());
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

TEST_F(RoutingTraceTest, ReadsScoresAndPredictions) {
  WriteScores();
  const auto reader = RoutingTraceReader::Open(path_).value();
  EXPECT_EQ(reader->model().scores_per_token, 2);
  EXPECT_EQ(reader->model().predicted_layers, 1);
  RoutingStep step;
  ASSERT_TRUE(reader->Next(step).value());
  ASSERT_EQ(step.others.size(), 8u);
  EXPECT_EQ(step.others[2 * 2].expert, 51) << "the second token's in the first layer";
  EXPECT_EQ(step.others[2 * 2].weight, 0.5f);
  EXPECT_EQ(step.others[7].expert, 299);
  const RoutingTraceModel& model = reader->model();
  ASSERT_EQ(std::ssize(step.predicted), model.SetAt(2, 0, 1));
  for (int64_t token = 0; token < 2; ++token) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      std::vector<int32_t> set;
      for (int32_t e = 0; e < 300; ++e) {
        const auto byte = static_cast<size_t>(model.SetAt(token, layer, 1) + e / 8);
        if ((step.predicted[byte] >> (e % 8) & 1) != 0) set.push_back(e);
      }
      std::vector<int32_t> expected;
      for (const ExpertChoice& choice : Choices(static_cast<int>(token), 1)) expected.push_back(choice.expert);
      EXPECT_EQ(set, layer == 0 ? std::vector<int32_t>() : expected) << token;
    }
  }
  EXPECT_FALSE(reader->Next(step).value());
}

TEST_F(RoutingTraceTest, AppendsWhatItRead) {
  WriteScores();
  const std::string bytes = Bytes();
  RoutingStep step;
  ASSERT_TRUE(RoutingTraceReader::Open(path_).value()->Next(step).value());
  ASSERT_TRUE(RoutingTraceWriter::Create(path_, WithScores()).value()->Append(step).ok());
  EXPECT_EQ(Bytes(), bytes);
}

// The bytes of ROUTING_TRACE.md.
TEST_F(RoutingTraceTest, HasTheDocumentedBytesOfScoresAndPredictions) {
  WriteScores();
  const std::string bytes = Bytes();
  constexpr size_t kChoices = 2 * 2 * 3 * 4, kOthers = 2 * 2 * 2 * 4, kSet = 38;
  ASSERT_EQ(bytes.size(), 64 + 4 + 2 * 12 + kChoices + kOthers + 2 * 2 * kSet);
  EXPECT_EQ(bytes.substr(24, 8), std::string("\3\0\0\0\2\0\1\0", 8));
  const size_t others = 64 + 4 + 2 * 12 + kChoices, sets = others + kOthers;
  EXPECT_EQ(bytes.substr(others, 8), std::string("\x32\0\0\x3f\x2b\1\x80\x3e", 8));  // 50 with 0.5, 299 with 0.25
  std::string set(kSet, '\0');
  EXPECT_EQ(bytes.substr(sets, kSet), set) << "the first layer has none before it";
  set[1 / 8] = 1 << 1;
  set[101 / 8] = 1 << 101 % 8;
  set[201 / 8] = 1 << 201 % 8;
  EXPECT_EQ(bytes.substr(sets + kSet, kSet), set);
}

// A file as version 1 was written: the same bytes, but for the version.
TEST_F(RoutingTraceTest, ReadsVersion1) {
  WriteTwoPasses();
  std::string bytes = Bytes();
  bytes[8] = 1;
  Write(bytes);
  RoutingStep step;
  const auto reader = RoutingTraceReader::Open(path_).value();
  ASSERT_TRUE(reader->Next(step).value());
  for (int i = 0; i < 3; ++i) ExpectChoices(step, static_cast<size_t>(i), Choices(i, 1), Choices(i, 2));
  EXPECT_TRUE(step.others.empty());
  EXPECT_TRUE(step.predicted.empty());
  bytes[28] = 7;  // reserved there
  Write(bytes);
  EXPECT_EQ(RoutingTraceReader::Open(path_).value()->model().scores_per_token, 0);
  EXPECT_TRUE(ReadAll().ok());
}

// Whatever a byte becomes, the file reads or says what is wrong.
TEST_F(RoutingTraceTest, SurvivesEveryChangedByte) {
  WriteScores();
  const std::string good = Bytes();
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      Write(bytes);
      const absl::Status status = ReadAll();
      if (status.ok()) continue;
      ++refused;
      EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr(path_));
    }
  }
  EXPECT_GT(refused, 150);
}

// The bytes of ROUTING_TRACE.md.
TEST_F(RoutingTraceTest, HasTheDocumentedBytes) {
  WriteTwoPasses();
  const std::string bytes = Bytes();
  ASSERT_EQ(bytes.size(), 64u + (4 + 3 * (12 + 24)) + (4 + 12 + 24));
  EXPECT_EQ(bytes.substr(0, 16), std::string("MOEROUTE\2\0\0\0\1\0\0\0", 16));
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
  Write(with(8, 3));
  EXPECT_THAT(ReadAll().message(), HasSubstr("version 3 of the format; this program reads versions 1 to 2"));
  Write(with(8, 0));
  EXPECT_THAT(ReadAll().message(), HasSubstr("version 0"));
  Write(with(29, 2));
  EXPECT_THAT(ReadAll().message(), HasSubstr("512 further scores a token, expected 0 to 256"));
  Write(with(30, 4));
  EXPECT_THAT(ReadAll().message(), HasSubstr("predictions by 4 layers, expected 0 to 3"));
  Write(with(22, 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("65836 experts a layer"));
  std::string large = with(17, 4);  // 1026 layers
  EXPECT_THAT((Write(large), ReadAll()).message(), HasSubstr("cannot be traced"));
  large = with(17, 3);  // 770 layers of 65,324 experts: within each bound, but not together
  large[21] = large[20] = static_cast<char>(0xff);
  EXPECT_THAT((Write(large), ReadAll()).message(), HasSubstr("cannot be traced"));
  Write(with(16, 0));
  EXPECT_THAT(ReadAll().message(), HasSubstr("0 layers of experts"));
  Write(with(67, 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("pass 0: a pass of 16777219 tokens"));
  Write(with(64 + 4 + 36 + 1, 2));
  EXPECT_THAT(ReadAll().message(), HasSubstr("expert 513 of 300"));
  Write(with(64 + 4 + 36 + 4, 1));
  EXPECT_THAT(ReadAll().message(), HasSubstr("ascending"));

  WriteScores();
  const std::string scored = Bytes();
  const size_t others = 64 + 4 + 2 * 12 + 2 * 2 * 3 * 4, sets = others + 2 * 2 * 2 * 4;
  std::string bytes = scored;
  bytes[others] = 100;
  EXPECT_THAT((Write(bytes), ReadAll()).message(), HasSubstr("pass 0: expert 100 is chosen and next-best"));
  bytes = scored;
  bytes[sets + 37] = 0x10;
  EXPECT_THAT((Write(bytes), ReadAll()).message(), HasSubstr("behind the last one, 299"));
  for (const size_t cut : {others + 1, sets, sets + 1, scored.size() - 1}) {
    EXPECT_THAT((Write(scored.substr(0, cut)), ReadAll()).message(), HasSubstr("pass 0: the file is truncated")) << cut;
  }
}

// A record that promises 65,536 tokens of 1024 layers, 72 GB, and has a few bytes of them.
TEST_F(RoutingTraceTest, MemoryFollowsTheFileAndNotItsPromises) {
  RoutingTraceModel model = kModel;
  model.moe_layers = 1024;
  model.num_experts = 512;
  model.experts_per_token = 256;
  ASSERT_TRUE(RoutingTraceWriter::Create(path_, model).ok());
  Write(Bytes() + std::string("\0\0\1\0", 4) + std::string(12 << 16, '\0') + "few");
  EXPECT_THAT(ReadAll().message(), HasSubstr("pass 0: the file is truncated"));
}

TEST_F(RoutingTraceTest, SaysWhatCannotBeWritten) {
  const auto create = [&](const std::string& path, const RoutingTraceModel& model) {
    return RoutingTraceWriter::Create(path, model).status();
  };
  EXPECT_THAT(create(directory_ + "/none/trace", kModel).message(), HasSubstr("none/trace: cannot be written"));
  RoutingTraceModel dense = kModel;
  dense.moe_layers = 0;
  EXPECT_EQ(create(path_, dense).code(), absl::StatusCode::kInvalidArgument);
  RoutingTraceModel many = kModel;
  many.scores_per_token = 257;
  EXPECT_THAT(create(path_, many).message(), HasSubstr("257 further scores"));
  auto writer = RoutingTraceWriter::Create("/dev/full", kModel);
  EXPECT_THAT(writer.status().message(), HasSubstr("/dev/full: cannot be written"));
}

}  // namespace
}  // namespace moestro::model
