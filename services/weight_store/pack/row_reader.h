// Produces the rows of a segment's tensor from the checkpoint, whatever form they have there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/segment_plan.h"

namespace moestro::store {

// Slices (kChecksumRows rows) of a transposed tensor that are read at once, from the same rows of the checkpoint.
int64_t SlicesReadTogether(const weights::TensorPlan& tensor);

// One case for each kind of source (checkpoint::TensorSource::Kind); the packer knows rows only. One reader a thread:
// it owns the buffers, which grow to the largest row group so far.
class RowReader {
 public:
  // Both must outlive the reader.
  RowReader(const checkpoint::Checkpoint& checkpoint, const checkpoint::Plan& plan)
      : checkpoint_(checkpoint), plan_(plan) {}

  // Rows [row, row + rows) of tensor `tensor` of the plan, one after the other, in the plan's dtype: `rows` *
  // RowBytes(dtype, cols) bytes, valid until the next call. The values are not checked, but for those
  // that are rounded to F16: INVALID_ARGUMENT if one is too large. The same if GPTQ's g_idx has another order of inputs
  // than the model. Errors of TensorFile::ReadAt, with the tensor's name.
  absl::StatusOr<std::span<const uint8_t>> Read(size_t tensor, int64_t row, int64_t rows);

  // The scales of an FP8 or I8 tensor as the segment has them (packed_matrix.h): TensorScaleBytes. Not checked.
  absl::Status ReadScales(size_t tensor, float* dst);

 private:
  absl::Status ReadRowScales(const weights::TensorPlan& tensor, const checkpoint::TensorRef& scale, float* dst);
  absl::Status ReadPublished(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row,
                             int64_t rows);
  absl::Status ReadInterleaved(const weights::TensorPlan& tensor, const checkpoint::TensorRef& weight, int64_t row,
                               int64_t rows);
  absl::Status ReadTransposed(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                              int64_t rows);
  absl::Status ReadStripe(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row);
  absl::Status ReadColumns(const checkpoint::TensorSource& source, int64_t first, int64_t count,
                           std::span<uint8_t> dst);
  absl::Status ReadWidened(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                           int64_t rows);
  absl::Status ReadJoinedHalves(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                                int64_t rows);
  // Rows [row, row + rows) of `cols` numbers of the checkpoint's tensor, as `dtype`: its own, or F16.
  absl::Status ReadAs(DType dtype, const checkpoint::TensorRef& ref, int64_t row, int64_t rows, int64_t cols,
                      uint8_t* dst);
  absl::Status ReadTransposedKeys(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source,
                                  int64_t row, int64_t rows);
  // ReadAs of a source that may be INT4 or INT8.
  absl::Status ReadSourceAs(DType dtype, const checkpoint::TensorSource& source, int64_t row, int64_t rows,
                            int64_t cols, uint8_t* dst);
  absl::Status ReadInt8AsF16(const checkpoint::TensorSource& source, int64_t row, int64_t rows, int64_t cols,
                             uint8_t* dst);
  absl::Status RoundToF16(const checkpoint::TensorRef& ref, DType published, const uint8_t* src, int64_t rows,
                          int64_t cols, uint8_t* dst);
  absl::Status RoundRowToF16(const checkpoint::TensorRef& ref, uint8_t* dst);  // what row_ has
  absl::Status ReadTwoTensors(const weights::TensorPlan& tensor, const checkpoint::TensorSource& source, int64_t row,
                              int64_t rows);
  // Rows [row, row + rows) of INT4 weights in int4->dtype.
  absl::Status ReadInt4(const checkpoint::TensorSource& source, int64_t row, int64_t rows, uint8_t* dst);
  absl::Status ReadInt4ByRow(const checkpoint::TensorSource& source, int64_t row, int64_t rows, uint8_t* dst);
  // Those of them that the stripe with the first one has; returns how many.
  absl::StatusOr<int64_t> ReadInt4ByInput(const checkpoint::TensorSource& source, int64_t row, int64_t rows,
                                          uint8_t* dst);
  absl::Status ReadInt4Stripe(const checkpoint::TensorSource& source, int64_t row);
  absl::Status ReadOutputs(const checkpoint::TensorRef& ref, int64_t lines, int64_t line_bytes, int64_t first,
                           int64_t bytes, std::vector<uint8_t>& dst) const;
  absl::Status CheckGroupOfInput(const checkpoint::TensorRef& ref, int64_t cols, int64_t group);
  absl::Status ReadBytes(const checkpoint::TensorRef& ref, int64_t offset, std::span<uint8_t> dst) const;

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::Plan& plan_;
  std::vector<uint8_t> rows_;                          // the result
  std::vector<uint8_t> buffer_;                        // what it is made from
  std::vector<uint8_t> codes_;                         // of INT4
  std::vector<uint8_t> columns_;                       // of a row, with those between the wanted ones
  std::vector<uint8_t> scales_;                        // of the codes in buffer_
  std::vector<uint8_t> source_;                        // what buffer_ or the result is rounded from
  std::vector<float> row_;                             // of it
  std::vector<uint8_t> zeros_;                         // packed zero points of them
  std::vector<uint32_t> factors_;                      // I4Z's scales with zero points, row by row
  std::vector<uint8_t> stripe_;                        // columns of a transposed tensor as the checkpoint has it
  std::vector<uint8_t> stripe_scales_, stripe_zeros_;  // if it is INT4
  const checkpoint::TensorSource* stripe_source_ = nullptr;
  int64_t stripe_begin_ = 0;  // its columns: these rows of the tensor
  int64_t stripe_rows_ = 0;
};

}  // namespace moestro::store
