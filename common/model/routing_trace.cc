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
constexpr uint32_t kVersion = 1;
// Larger than any model's; they bound the products of sizes in a broken file.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxExperts = 65535;
constexpr uint32_t kMaxExpertsPerToken = 256;
constexpr uint32_t kMaxTokens = 1 << 16;  // per pass

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t first_moe_layer;
  uint32_t moe_layers;
  uint32_t num_experts;
  uint32_t experts_per_token;
  uint32_t reserved;
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

absl::Status CheckModel(const RoutingTraceModel& model) {
  const auto in = [](int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; };
  if (in(model.first_moe_layer, 0, kMaxLayers) && in(model.moe_layers, 1, kMaxLayers) &&
      in(model.num_experts, 1, kMaxExperts) &&
      in(model.experts_per_token, 1, std::min<int64_t>(model.num_experts, kMaxExpertsPerToken)) &&
      model.fingerprint.size() <= sizeof(FileHeader::fingerprint)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("a model with %d layers of experts after %d others, %d experts a layer and %d a token, cannot be "
                      "traced",
                      model.moe_layers, model.first_moe_layer, model.num_experts, model.experts_per_token));
}

template <typename T>
void Append(std::vector<char>& bytes, const T& value) {
  bytes.resize(bytes.size() + sizeof(T));
  std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
}

}  // namespace

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
  MOE_RETURN_IF_ERROR(CheckModel(model));
  std::unique_ptr<RoutingTraceWriter> writer(new RoutingTraceWriter(path, model));
  FileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.first_moe_layer = static_cast<uint32_t>(model.first_moe_layer);
  header.moe_layers = static_cast<uint32_t>(model.moe_layers);
  header.num_experts = static_cast<uint32_t>(model.num_experts);
  header.experts_per_token = static_cast<uint32_t>(model.experts_per_token);
  std::ranges::copy(model.fingerprint, header.fingerprint);
  writer->file_.write(reinterpret_cast<const char*>(&header), sizeof(header));
  if (!writer->file_.flush()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be written"));
  return writer;
}

void RoutingTraceWriter::Begin(std::span<const TracedToken> tokens) {
  MOE_CHECK(tokens.size() <= kMaxTokens);
  step_.tokens.assign(tokens.begin(), tokens.end());
  step_.choices.resize(tokens.size() * static_cast<size_t>(model_.choices_per_token()));
}

void RoutingTraceWriter::Note(int64_t moe_layer, int64_t first_row, std::span<const ExpertChoice> choices) {
  const int64_t k = model_.experts_per_token;
  const int64_t rows = std::ssize(choices) / k;
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(choices.data() + i * k, k,
                step_.choices.data() + ((first_row + i) * model_.moe_layers + moe_layer) * k);
  }
}

absl::Status RoutingTraceWriter::End() {
  bytes_.clear();
  Append(bytes_, static_cast<uint32_t>(step_.tokens.size()));
  for (const TracedToken& token : step_.tokens) {
    Append(bytes_, FileToken{token.sequence, token.position, token.prompt ? 1u : 0u});
  }
  for (const ExpertChoice& choice : step_.choices) {
    Append(bytes_, FileChoice{static_cast<uint16_t>(choice.expert), ToBf16(choice.weight)});
  }
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
  if (header.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrFormat("version %d of the format; this program reads version %d", header.version, kVersion));
  }
  const size_t length = strnlen(header.fingerprint, sizeof(header.fingerprint));
  model_ = {.fingerprint = std::string(header.fingerprint, length),
            .first_moe_layer = header.first_moe_layer,
            .moe_layers = header.moe_layers,
            .num_experts = header.num_experts,
            .experts_per_token = header.experts_per_token};
  return CheckModel(model_);
}

absl::StatusOr<bool> RoutingTraceReader::Next(RoutingStep& step) {
  uint32_t tokens = 0;
  if (file_.peek() == std::ifstream::traits_type::eof()) return false;
  absl::Status status = absl::DataLossError("the file is truncated");
  if (Read(&tokens, sizeof(tokens))) {
    status = tokens >= 1 && tokens <= kMaxTokens
                 ? ReadStep(tokens, step)
                 : absl::DataLossError(absl::StrFormat("a pass of %d tokens, expected 1 to %d", tokens, kMaxTokens));
  }
  MOE_RETURN_IF_ERROR(Annotate(status, absl::StrFormat("%s: pass %d", path_, steps_)));
  ++steps_;
  return true;
}

absl::Status RoutingTraceReader::ReadStep(int64_t tokens, RoutingStep& step) {
  const int64_t choices = tokens * model_.choices_per_token();
  bytes_.resize(static_cast<size_t>(tokens) * sizeof(FileToken) + static_cast<size_t>(choices) * sizeof(FileChoice));
  if (!Read(bytes_.data(), bytes_.size())) return absl::DataLossError("the file is truncated");
  step.tokens.clear();
  step.choices.clear();
  const char* at = bytes_.data();
  const auto take = [&at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  for (int64_t i = 0; i < tokens; ++i) {
    const auto token = take(FileToken{});
    step.tokens.push_back({token.sequence, token.position, token.prompt != 0});
  }
  for (int64_t i = 0; i < choices; ++i) {
    const auto choice = take(FileChoice{});
    const bool first = i % model_.experts_per_token == 0;
    if (choice.expert >= model_.num_experts || (!first && choice.expert <= step.choices.back().expert)) {
      return absl::DataLossError(
          absl::StrFormat("expert %d of %d, which must follow in ascending order", choice.expert, model_.num_experts));
    }
    step.choices.push_back({choice.expert, FromBf16(choice.weight)});
  }
  return absl::OkStatus();
}

}  // namespace moestro::model
