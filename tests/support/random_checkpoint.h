// A small checkpoint of random weights in a temporary directory, with the bytes of every tensor at hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/checkpoint/segment_plan.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro {

// Two layers (one dense, one of experts) whose sizes are multiples of nothing: heads straddle row groups.
ModelSpec OddSpec();
// As OddSpec, but with the head sizes that FP8 asks for; other sizes end in the middle of scale blocks.
ModelSpec BlockSpec();

class RandomCheckpoint {
 public:
  struct Tensor {
    std::string dtype;  // as safetensors spells it
    std::vector<int64_t> shape;
    std::string data;
  };

  // Linear layers are FP8 with scales if `fp8`, else BF16. Norms are BF16 and the router F32 in layer 0, and the
  // reverse in layer 1.
  RandomCheckpoint(const ModelSpec& spec, bool fp8);

  const ModelSpec& spec() const { return spec_; }
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const testing::TempDir& dir() const { return dir_; }

  // Writes the files: tensors alternate between two shards, so that a scale and its weight are often apart.
  void Write() const;
  Checkpoint Open() const;

 private:
  ModelSpec spec_;
  testing::TempDir dir_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace moestro
