#include "common/model/batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace moestro::model {
namespace {

absl::Status CheckPages(const weights::ModelSpec& spec, const kv::KvPages& pages) {
  const kv::KvGeometry& geometry = pages.geometry();
  if (geometry.num_layers == spec.num_layers && geometry.kv_dim == spec.kv_dim() &&
      (geometry.kv_heads == 0 || geometry.kv_heads == spec.num_kv_heads) && geometry.page_tokens == kv::kPageTokens) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("KV pages hold %d layers of %d elements (%d packed heads) for %d tokens, the model needs %d "
                      "layers of %d elements (in rows, or %d packed heads) for %d tokens",
                      geometry.num_layers, geometry.kv_dim, geometry.kv_heads, geometry.page_tokens, spec.num_layers,
                      spec.kv_dim(), spec.num_kv_heads, kv::kPageTokens));
}

absl::Status CheckRow(const weights::ModelSpec& spec, const EngineRow& row, std::span<const kv::KvPages> sequences) {
  if (row.sequence < 0 || static_cast<size_t>(row.sequence) >= sequences.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("sequence %d is out of range: there are %d", row.sequence, sequences.size()));
  }
  if (row.token < 0 || row.token >= spec.token_count) {
    return absl::InvalidArgumentError(
        absl::StrFormat("token id %d is outside the vocabulary of %d tokens", row.token, spec.token_count));
  }
  if (row.position < 0 || row.position >= spec.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrFormat("position %d is outside the model's context of %d tokens",
                                                      row.position, spec.max_position_embeddings));
  }
  const kv::KvPages& pages = sequences[row.sequence];
  if (row.position >= pages.capacity()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "position %d does not fit into the sequence's KV pages, which hold %d tokens", row.position, pages.capacity()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckedBatch> CheckBatch(const weights::ModelSpec& spec, int64_t max_rows, const ForwardBatch& batch) {
  CheckedBatch checked;
  MOE_RETURN_IF_ERROR(CheckBatch(spec, max_rows, batch, checked));
  return checked;
}

absl::Status CheckBatch(const weights::ModelSpec& spec, int64_t max_rows, const ForwardBatch& batch,
                        CheckedBatch& checked) {
  if (batch.rows.empty() || static_cast<int64_t>(batch.rows.size()) > max_rows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a forward pass takes 1 to %d rows, not %d", max_rows, batch.rows.size()));
  }
  for (const kv::KvPages& pages : batch.sequences) MOE_RETURN_IF_ERROR(CheckPages(spec, pages));

  checked.rows = batch.rows;
  checked.sequences = batch.sequences;
  checked.form = batch.form;
  checked.runs.clear();
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const EngineRow& row = batch.rows[i];
    MOE_RETURN_IF_ERROR(Annotate(CheckRow(spec, row, batch.sequences), absl::StrCat("row ", i)));
    const bool continues = i > 0 && batch.rows[i - 1].sequence == row.sequence;
    if (continues && row.position != batch.rows[i - 1].position + 1) {
      return absl::InvalidArgumentError(absl::StrFormat("row %d: position %d does not follow position %d", i,
                                                        row.position, batch.rows[i - 1].position));
    }
    const auto is_of_sequence = [&](const SequenceRun& run) {
      return batch.rows[static_cast<size_t>(run.begin)].sequence == row.sequence;
    };
    if (!continues && std::ranges::any_of(checked.runs, is_of_sequence)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("row %d: the rows of sequence %d are not consecutive", i, row.sequence));
    }
    if (!continues) checked.runs.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i)});
    ++checked.runs.back().end;
  }
  return absl::OkStatus();
}

}  // namespace moestro::model
