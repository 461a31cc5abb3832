#include "common/model/routing_trace.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"

namespace moestro::model {
namespace {

constexpr char kMagic[8] = {'M', 'O', 'E', 'R', 'O', 'U', 'T', 'E'};
constexpr uint32_t kFirstVersion = 1;  // choices alone
constexpr uint32_t kVersion = 2;
// Larger than any model's; they bound the products of sizes in a broken file.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxExperts = 65535;
constexpr int64_t kMaxLayerExperts = 1 << 20;  // layers * experts: 70 times DeepSeek-V3's
constexpr uint32_t kMaxExpertsPerToken = 256;
constexpr int64_t kPiece = 1 << 20;  // bytes of a record that are read at a time

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t first_moe_layer;
  uint32_t moe_layers;
  uint32_t num_experts;
  uint32_t experts_per_token;
  uint16_t scores_per_token;  // version 1: zero, like the next
  uint16_t predicted_layers;
  char fingerprint[32];
};
static_assert(sizeof(FileHeader) == 64);

struct FileToken {
  uint32_t sequence;
  uint32_t position;
  uint32_t prompt;
};
static_assert(sizeof(FileToken) == 12);

struct FileChoice {
  uint16_t expert;
  uint16_t weight;  // BF16
};
static_assert(sizeof(FileChoice) == 4);

template <typename T>
void AppendTo(std::vector<char>& bytes, const T& value) {
  bytes.resize(bytes.size() + sizeof(T));
  std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
}

template <typename T>
T At(const std::vector<char>& bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// to[first_row + i, moe_layer] = from[i], for rows of `per_row` experts each.
void CopyRows(int64_t moe_layers, int64_t per_row, int64_t moe_layer, int64_t first_row,
              std::span<const ExpertChoice> from, std::vector<ExpertChoice>& to) {
  for (int64_t begin = 0; begin < std::ssize(from); begin += per_row) {
    std::copy_n(from.begin() + begin, per_row, to.begin() + (first_row * moe_layers + moe_layer) * per_row);
    ++first_row;
  }
}

}  // namespace

absl::Status CheckTraceModel(const RoutingTraceModel& model) {
  const auto in = [](int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; };
  if (!in(model.first_moe_layer, 0, kMaxLayers) || !in(model.moe_layers, 1, kMaxLayers) ||
      !in(model.num_experts, 1, kMaxExperts) || model.moe_layers * model.num_experts > kMaxLayerExperts ||
      !in(model.experts_per_token, 1, std::min<int64_t>(model.num_experts, kMaxExpertsPerToken)) ||
      model.fingerprint.size() > sizeof(FileHeader::fingerprint)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a model with %d layers of experts after %d others, %d experts a layer and %d a token, cannot "
                        "be traced",
                        model.moe_layers, model.first_moe_layer, model.num_experts, model.experts_per_token));
  }
  const int64_t most_scores = std::min<int64_t>(model.num_experts - model.experts_per_token, kMaxExpertsPerToken);
  if (!in(model.scores_per_token, 0, most_scores) || !in(model.predicted_layers, 0, kMaxPredictedLayers)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d further scores a token, expected 0 to %d, and predictions by %d layers, expected 0 to %d",
                        model.scores_per_token, most_scores, model.predicted_layers, kMaxPredictedLayers));
  }
  return absl::OkStatus();
}

RoutingTraceModel TraceModelOf(const weights::ModelSpec& spec, const std::string& fingerprint) {
  return {.fingerprint = fingerprint,
          .first_moe_layer = spec.MoeLayer(0),
          .moe_layers = spec.num_moe_layers(),
          .num_experts = spec.num_experts,
          .experts_per_token = spec.experts_per_token};
}

RoutingTraceWriter::RoutingTraceWriter(const std::string& path, const RoutingTraceModel& model)
    : path_(path), model_(model), file_(path, std::ios::binary | std::ios::trunc) {}

absl::StatusOr<std::unique_ptr<RoutingTraceWriter>> RoutingTraceWriter::Create(const std::string& path,
                                                                               const RoutingTraceModel& model) {
  MOE_RETURN_IF_ERROR(CheckTraceModel(model));
  std::unique_ptr<RoutingTraceWriter> writer(new RoutingTraceWriter(path, model));
  FileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.first_moe_layer = static_cast<uint32_t>(model.first_moe_layer);
  header.moe_layers = static_cast<uint32_t>(model.moe_layers);
  header.num_experts = static_cast<uint32_t>(model.num_experts);
  header.experts_per_token = static_cast<uint32_t>(model.experts_per_token);
  header.scores_per_token = static_cast<uint16_t>(model.scores_per_token);
  header.predicted_layers = static_cast<uint16_t>(model.predicted_layers);
  std::ranges::copy(model.fingerprint, header.fingerprint);
  writer->file_.write(reinterpret_cast<const char*>(&header), sizeof(header));
  if (!writer->file_.flush()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be written"));
  return writer;
}

void RoutingTraceWriter::Begin(std::span<const TracedToken> tokens) {
  MOE_CHECK(tokens.size() <= kMaxPassTokens);
  const auto rows = std::ssize(tokens);
  step_.tokens.assign(tokens.begin(), tokens.end());
  step_.choices.resize(static_cast<size_t>(rows * model_.choices_per_token()));
  step_.others.resize(static_cast<size_t>(rows * model_.others_per_token()));
  step_.predicted.assign(static_cast<size_t>(model_.SetAt(rows, 0, 1)), 0);
}

void RoutingTraceWriter::Note(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> choices) {
  CopyRows(model_.moe_layers, model_.experts_per_token, moe_layer, first_row, choices, step_.choices);
}

void RoutingTraceWriter::NoteOthers(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> others) {
  CopyRows(model_.moe_layers, model_.scores_per_token, moe_layer, first_row, others, step_.others);
}

void RoutingTraceWriter::NotePrediction(int64_t moe_layer, int64_t row, int64_t ahead,
                                        std::span<const ExpertChoice> experts) {
  uint8_t* const set = step_.predicted.data() + model_.SetAt(row, moe_layer, ahead);
  std::fill_n(set, model_.set_bytes(), 0);
  for (const ExpertChoice& choice : experts) set[choice.expert / 8] |= static_cast<uint8_t>(1 << choice.expert % 8);
}

absl::Status RoutingTraceWriter::End() { return Append(step_); }

absl::Status RoutingTraceWriter::Append(const RoutingStep& step) {
  const auto rows = std::ssize(step.tokens);
  MOE_CHECK(rows <= kMaxPassTokens && std::ssize(step.choices) == rows * model_.choices_per_token() &&
            std::ssize(step.others) == rows * model_.others_per_token() &&
            std::ssize(step.predicted) == model_.SetAt(rows, 0, 1));
  bytes_.clear();
  AppendTo(bytes_, static_cast<uint32_t>(rows));
  for (const TracedToken& token : step.tokens) {
    AppendTo(bytes_, FileToken{token.sequence, token.position, token.prompt ? 1u : 0u});
  }
  for (const auto* experts : {&step.choices, &step.others}) {
    for (const ExpertChoice& choice : *experts) {
      AppendTo(bytes_, FileChoice{static_cast<uint16_t>(choice.expert), ToBf16(choice.weight)});
    }
  }
  bytes_.insert(bytes_.end(), step.predicted.begin(), step.predicted.end());
  file_.write(bytes_.data(), std::ssize(bytes_));
  return file_.flush() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(path_, ": cannot be written"));
}

absl::StatusOr<std::unique_ptr<RoutingTraceReader>> RoutingTraceReader::Open(const std::string& path) {
  std::unique_ptr<RoutingTraceReader> reader(new RoutingTraceReader(path));
  MOE_RETURN_IF_ERROR(Annotate(reader->ReadHeader(), path));
  return reader;
}

bool RoutingTraceReader::Read(void* to, size_t bytes) {
  return file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)).good();
}

absl::Status RoutingTraceReader::ReadHeader() {
  if (!file_) return absl::InvalidArgumentError("cannot be read");
  FileHeader header;
  if (!Read(&header, sizeof(header)) || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("is not a routing trace (moestro-decode --routing-trace writes one)");
  }
  if (header.version < kFirstVersion || header.version > kVersion) {
    return absl::InvalidArgumentError(absl::StrFormat("version %d of the format; this program reads versions %d to %d",
                                                      header.version, kFirstVersion, kVersion));
  }
  const bool choices_alone = header.version == kFirstVersion;
  const size_t length = strnlen(header.fingerprint, sizeof(header.fingerprint));
  model_ = {.fingerprint = std::string(header.fingerprint, length),
            .first_moe_layer = header.first_moe_layer,
            .moe_layers = header.moe_layers,
            .num_experts = header.num_experts,
            .experts_per_token = header.experts_per_token,
            .scores_per_token = choices_alone ? 0 : header.scores_per_token,
            .predicted_layers = choices_alone ? 0 : header.predicted_layers};
  return CheckTraceModel(model_);
}

absl::StatusOr<bool> RoutingTraceReader::Next(RoutingStep& step) {
  uint32_t tokens = 0;
  if (file_.peek() == std::ifstream::traits_type::eof()) return false;
  absl::Status status = absl::DataLossError("the file is truncated");
  if (Read(&tokens, sizeof(tokens))) {
    status =
        tokens >= 1 && tokens <= kMaxPassTokens
            ? ReadStep(tokens, step)
            : absl::DataLossError(absl::StrFormat("a pass of %d tokens, expected 1 to %d", tokens, kMaxPassTokens));
  }
  MOE_RETURN_IF_ERROR(Annotate(status, absl::StrFormat("%s: pass %d", path_, steps_)));
  ++steps_;
  return true;
}

bool RoutingTraceReader::ReadBytes(int64_t bytes) {
  bytes_.clear();
  for (int64_t done = 0; done < bytes; done = std::ssize(bytes_)) {
    const int64_t piece = std::min(bytes - done, kPiece);
    bytes_.resize(static_cast<size_t>(done + piece));
    if (!Read(bytes_.data() + done, static_cast<size_t>(piece))) return false;
  }
  return true;
}

absl::Status RoutingTraceReader::ReadStep(int64_t tokens, RoutingStep& step) {
  if (!ReadBytes(tokens * static_cast<int64_t>(sizeof(FileToken)))) {
    return absl::DataLossError("the file is truncated");
  }
  step.tokens.clear();
  for (int64_t i = 0; i < tokens; ++i) {
    const auto token = At<FileToken>(bytes_, i);
    step.tokens.push_back({token.sequence, token.position, token.prompt != 0});
  }
  const int64_t rows = tokens * model_.moe_layers;
  MOE_RETURN_IF_ERROR(ReadExperts(rows, model_.experts_per_token, step.choices));
  MOE_RETURN_IF_ERROR(ReadExperts(rows, model_.scores_per_token, step.others));
  if (!ReadBytes(model_.SetAt(tokens, 0, 1))) return absl::DataLossError("the file is truncated");
  step.predicted.assign(bytes_.begin(), bytes_.end());
  return CheckSets(step);
}

absl::Status RoutingTraceReader::ReadExperts(int64_t rows, int64_t per_row, std::vector<ExpertChoice>& experts) {
  const int64_t count = rows * per_row;
  if (!ReadBytes(count * static_cast<int64_t>(sizeof(FileChoice)))) {
    return absl::DataLossError("the file is truncated");
  }
  experts.clear();
  for (int64_t i = 0; i < count; ++i) {
    const auto choice = At<FileChoice>(bytes_, i);
    const bool first = i % per_row == 0;
    if (choice.expert >= model_.num_experts || (!first && choice.expert <= experts.back().expert)) {
      return absl::DataLossError(
          absl::StrFormat("expert %d of %d, which must follow in ascending order", choice.expert, model_.num_experts));
    }
    experts.push_back({choice.expert, FromBf16(choice.weight)});
  }
  return absl::OkStatus();
}

// What the types of a record allow and the format does not: an expert among the chosen and the next-best ones of a row,
// and bits behind a set's last expert.
absl::Status RoutingTraceReader::CheckSets(const RoutingStep& step) const {
  const int64_t k = model_.experts_per_token, s = model_.scores_per_token;
  for (int64_t row = 0; s > 0 && row < std::ssize(step.others) / s; ++row) {
    auto chosen = step.choices.begin() + row * k;
    const auto end = chosen + k;
    for (auto other = step.others.begin() + row * s; other != step.others.begin() + (row + 1) * s; ++other) {
      while (chosen != end && chosen->expert < other->expert) ++chosen;
      if (chosen != end && chosen->expert == other->expert) {
        return absl::DataLossError(absl::StrFormat("expert %d is chosen and next-best", other->expert));
      }
    }
  }
  const int unused = static_cast<int>(8 * model_.set_bytes() - model_.num_experts);
  for (size_t last = static_cast<size_t>(model_.set_bytes()) - 1; last < step.predicted.size();
       last += static_cast<size_t>(model_.set_bytes())) {
    if (unused > 0 && step.predicted[last] >> (8 - unused) != 0) {
      return absl::DataLossError(
          absl::StrFormat("a prediction has an expert behind the last one, %d", model_.num_experts - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace moestro::model
