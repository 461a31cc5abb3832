// The tensors of a model as a GGUF file has them: names, types and order of rows as llama.cpp's converters and
// quantiser choose them. Their values are those of the checkpoint with --weights bf16, rounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor/dtype.h"
#include "services/cli/model/make_model/tensor_plan.h"

namespace moestro::cli {

inline constexpr int64_t kGgufAlignment = 32;  // of tensors: the format's default

// Where a row comes from.
enum class GgufRows {
  kAsTheyAre,
  kNeighbours,  // llama: halves of a head by turns, so that neighbours rotate
  kTransposed,  // of each head_rows of the source, the first head_keys as columns: keys of kv_b_proj, downs of DBRX,
                // all weights of gpt-oss's experts
  kValues,      // of kv_b_proj: each head's values
};

struct GgufTensor {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> extents;        // as in the file: the first is that of a row
  std::vector<PlannedTensor> sources;  // matrices of the checkpoint, stacked: an expert each, or one
  GgufRows order = GgufRows::kAsTheyAre;
  int64_t head_rows = 0;  // of a source, if they have another order
  int64_t head_keys = 0;  // of these, kTransposed takes so many and kValues the others
  int64_t first_col = 0;  // of a source's columns, every col_step-th from this one on
  int64_t col_step = 1;
  std::vector<float> values;  // if there are no sources
  int64_t offset = 0;         // in the file, bytes

  int64_t cols() const { return extents.front(); }
  int64_t rows() const;
  int64_t row_bytes() const;
};

struct GgufPlan {
  std::vector<GgufTensor> tensors;  // in the order of the file
  std::string header;               // all that precedes the first tensor, padded
  int64_t bytes = 0;                // of the file
};

// REQUIRES: a model with model.gguf, as ResolveModel makes it.
GgufPlan PlanGguf(const MadeModel& model, const std::string& name);

// Writes rows [begin, end) of `tensor` to `out`, (end - begin) * row_bytes(). Thread-safe.
void FillGgufRows(const GgufTensor& tensor, uint64_t seed, int64_t begin, int64_t end, std::byte* out);

// Whether "Q4_K_M" gives values and downs of this layer six bits instead of four.
bool HasMoreBits(int64_t layer, int64_t layers);

// Whether GGUF has weights of this type, one of MakeModelWeights(); its number in general.file_type.
bool IsGgufType(std::string_view weights);
int64_t GgufFileType(std::string_view weights);

// Length and bytes.
std::string GgufString(std::string_view text);

}  // namespace moestro::cli
