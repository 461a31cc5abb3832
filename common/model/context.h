// The context of every stage of a forward pass, and the rows that stages hand on.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/math.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/buffer.h"
#include "common/model/schema.h"
#include "common/platform/worker_pool.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

struct EngineRow;
class Rope;

// All members must outlive it. REQUIRES a spec that CheckSpec (binding.h) accepts.
struct EngineContext {
  const weights::ModelSpec& spec;
  const CpuKernels& kernels;
  WorkerPool& pool;
};

// A view of a forward pass's rows. H = hidden_size.
struct RowsView {
  int64_t count = 0;
  float* residual = nullptr;  // [count, H]
  uint16_t* x = nullptr;      // BF16 [count, H]: the last norm of the residual; input of linear layers and experts
  float* cosine = nullptr;    // [count, rotated_dims() / 2]: for the rows' positions
  float* sine = nullptr;      // the same
  // [count]: what the shared expert's output is multiplied by; null when the model has no gate of it.
  float* shared_weights = nullptr;
};

// The memory of rows.
class RowBuffers {
 public:
  RowBuffers(const weights::ModelSpec& spec, int64_t max_rows);
  static int64_t Bytes(const weights::ModelSpec& spec, int64_t max_rows);

  RowsView View(IndexRange rows) const {
    return {.count = rows.size(),
            .residual = residual_.get() + rows.begin * hidden_,
            .x = x_.get() + rows.begin * hidden_,
            .cosine = cosine_.get() + rows.begin * pairs_,
            .sine = sine_.get() + rows.begin * pairs_,
            .shared_weights = has_gate_ ? shared_weights_.get() + rows.begin : nullptr};
  }

 private:
  template <typename Take>
  void Visit(int64_t max_rows, Take&& take);

  int64_t hidden_ = 0;
  int64_t pairs_ = 0;
  bool has_gate_ = false;
  Buffer<float> residual_;
  Buffer<uint16_t> x_;
  Buffer<float> cosine_;
  Buffer<float> sine_;
  Buffer<float> shared_weights_;
};

// out = the norm of a row of the residual. Either output may be null.
inline void NormResidual(const EngineContext& context, const float* row, const float* weight, float* out,
                         uint16_t* out_bf16) {
  const auto norm = context.spec.layer_norms != 0 ? context.kernels.layer_norm : context.kernels.rms_norm;
  norm(row, weight, context.spec.hidden_size, static_cast<float>(context.spec.rms_norm_eps), out, out_bf16);
}

// The row of `token` in F32, exact: an embedding in blocks is rounded only where DequantizeRow subtracts a min.
void EmbedRow(const Embedding& embedding, int64_t token, int64_t hidden, float* out);

// Writes the rows' residual, which EmbedRow gives, cosine and sine.
void EmbedRows(const EngineContext& context, const Rope& rope, const Embedding& embedding,
               std::span<const EngineRow> batch_rows, const RowsView& rows);

}  // namespace moestro::model
