// DeepSeek-V3 and Qwen3-MoE by their formulas: double precision, one token at a time, no blocks, no packing, no code
// shared with the engine. Slow; for small models.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/kernels/cpu/input_coding.h"
#include "common/weights/segment.h"

namespace moestro {

class ReferenceModel {
 public:
  // Where activations are rounded to BF16. kNone: nowhere. The others repeat the engine's roundings for that form of
  // MLA: the input of every linear layer, the cached vectors, queries, softmax weights, expanded keys and values. With
  // grouped queries both are the same.
  enum class Rounding { kNone, kAbsorbed, kUnabsorbed };

  struct Result {
    std::vector<std::vector<double>> logits;  // [token][vocab_size], padding ids included
    // Per token, over all MoE layers: the distance of the biased scores from another choice of groups or experts.
    std::vector<double> router_margin;
  };

  // Dequantises all tensors of the segment. REQUIRES: a complete and valid segment.
  // Inputs of I8 weights are rounded to 8 bits, unless int8_activations is kBf16.
  explicit ReferenceModel(const weights::WeightSegment& segment,
                          Int8Activations int8_activations = Int8Activations::kPublished);

  Result Run(std::span<const int32_t> tokens, Rounding rounding);

 private:
  struct Matrix {
    int64_t rows = 0;
    int64_t cols = 0;
    std::vector<double> values;      // of I8: codes
    std::vector<double> row_scales;  // of I8, whose inputs become codes, too; else empty
    double at(int64_t row, int64_t col) const { return values[row * cols + col]; }
  };
  using Vector = std::vector<double>;

  struct CachedToken {
    Vector latent;
    Vector rotated_key;  // MLA: one; grouped queries: of all kv heads
    Vector values;       // grouped queries: of all kv heads
  };

  const Matrix& Tensor(const std::string& name) const;
  const Matrix& LayerTensor(int64_t layer, const std::string& suffix) const;
  Vector Linear(const std::string& name, const Vector& x) const;
  Vector Biased(const std::string& prefix, const Vector& x, bool biased) const;  // a linear layer, with a bias or not
  Vector Projected(const std::string& prefix, const Vector& x) const;            // queries, keys or values
  Vector Norm(const std::string& name, const Vector& x, double eps) const;
  Vector NormResidual(const std::string& name, Vector x) const;
  Vector Attention(int64_t layer, int64_t position, const Vector& x, std::vector<CachedToken>& cache) const;
  Vector GroupedAttention(int64_t layer, int64_t position, const Vector& x, std::vector<CachedToken>& cache) const;
  Vector NormRotated(const std::string& norm, const Vector& x, int64_t head, int64_t position) const;
  Vector SoftmaxWeights(const Vector& scores) const;
  Vector AttendHead(int64_t layer, int64_t head, const Vector& nope, const Vector& rope,
                    const std::vector<CachedToken>& cache) const;
  Vector Mlp(const std::string& prefix, const Vector& x, bool routed = false) const;
  Vector FeedForward(int64_t layer, const Vector& x, double* margin) const;
  Vector Rotate(const Vector& x, int64_t position) const;
  double SoftmaxScale() const;
  double Rounded(double value) const;
  Vector Rounded(Vector values) const;

  weights::ModelSpec spec_;
  bool rounds_to_int8_;
  std::map<std::string, Matrix, std::less<>> tensors_;
  Rounding rounding_ = Rounding::kNone;  // of the current Run
};

}  // namespace moestro
