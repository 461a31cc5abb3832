#include "common/checkpoint/tensor_lookup.h"

#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace moestro::checkpoint {
namespace {

// Wrappers around a text model put their prefix in the place of a plain one: first of all names, or of the model's only
// (the head stays outside).
constexpr std::pair<std::string_view, std::string_view> kWrappers[] = {
    {"", "language_model."},
    {"model.", "model.language_model."},
};

std::string Replaced(std::string_view name, std::string_view from, std::string_view to) {
  if (!name.starts_with(from)) return std::string(name);
  return std::string(to).append(name.substr(from.size()));
}

// The reference library's name of a router's bias, for families that have it beside the router.
std::string WithoutGate(const std::string& segment_name) {
  constexpr std::string_view kBias = "gate.e_score_correction_bias", kGate = "gate.";
  if (!segment_name.ends_with(kBias)) return segment_name;
  return std::string(segment_name).erase(segment_name.size() - kBias.size(), kGate.size());
}

}  // namespace

TensorLookup::TensorLookup(const Checkpoint& checkpoint, int64_t experts) : checkpoint_(checkpoint), experts_(experts) {
  if (checkpoint.Find(model::kEmbeddingName) != nullptr) return;
  for (const auto& [plain, wrapper] : kWrappers) {
    if (checkpoint.Find(Replaced(model::kEmbeddingName, plain, wrapper)) == nullptr) continue;
    plain_prefix_ = plain;
    wrapper_prefix_ = wrapper;
    return;
  }
}

std::string TensorLookup::Published(const std::string& name) const {
  return Replaced(name, plain_prefix_, wrapper_prefix_);
}

std::string TensorLookup::Plain(std::string_view name) const { return Replaced(name, wrapper_prefix_, plain_prefix_); }

std::optional<TensorPlace> TensorLookup::Fused(const model::ModelTensor& tensor, const std::string& name) const {
  constexpr char kExperts[] = ".experts.";
  const size_t at = name.find(kExperts);
  if (tensor.part != model::TensorPart::kExpert || !model::IsLinear(tensor.role)) return std::nullopt;
  if (at == std::string::npos) return std::nullopt;
  const std::string rest = name.substr(at + std::strlen(kExperts));
  int64_t expert = 0;
  if (!absl::SimpleAtoi(rest.substr(0, rest.find('.')), &expert)) return std::nullopt;
  const bool down = tensor.name.ends_with(".down_proj.weight"), up = tensor.name.ends_with(".up_proj.weight");
  const int64_t rows = down ? tensor.rows : 2 * tensor.rows;
  TensorPlace place{.name = Published(absl::StrCat(name.substr(0, at), kExperts, down ? "down_proj" : "gate_up_proj")),
                    .shape = {experts_, rows, tensor.cols},
                    .matrix = expert,
                    .row = up ? tensor.rows : 0};
  if (checkpoint_.Find(place.name) != nullptr) return place;
  if (checkpoint_.Find(absl::StrCat(place.name, kBlocks.codes)) == nullptr) return std::nullopt;
  place.two_tensors = &kBlocks;
  if (down) return place;
  place.row = up ? 1 : 0;
  place.output_step = 2;
  return place;
}

std::optional<TensorPlace> TensorLookup::AsOneOrTwo(TensorPlace place) const {
  if (checkpoint_.Find(place.name) != nullptr) return place;
  if (place.transposed) return std::nullopt;
  for (const TwoTensors* form : {&kPacked, &kByInput}) {
    if (checkpoint_.Find(form->Name(place.name, form->codes)) == nullptr) continue;
    place.two_tensors = form;
    return place;
  }
  return std::nullopt;
}

TensorPlace TensorLookup::Find(const model::ModelTensor& tensor, const model::PublishedPart& part) const {
  const TensorPlace usual{.name = Published(part.name),
                          .shape = part.shape,
                          .row = part.first_row,
                          .transposed = part.transposed,
                          .first_col = part.first_col,
                          .output_step = part.col_step};
  if (std::optional<TensorPlace> found = AsOneOrTwo(usual); found) return *std::move(found);
  for (const std::string& name : {part.name, tensor.name, WithoutGate(tensor.name)}) {
    if (std::optional<TensorPlace> fused = Fused(tensor, name); fused) return *std::move(fused);
    std::optional<TensorPlace> other = AsOneOrTwo({.name = Published(name), .shape = tensor.shape()});
    if (other) return *std::move(other);
  }
  return usual;
}

}  // namespace moestro::checkpoint
