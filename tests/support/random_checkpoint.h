// A small checkpoint of random weights in a temporary directory, with every tensor's bytes available.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/checkpoint/segment_plan.h"
#include "tests/common/checkpoint/checkpoint_test_util.h"

namespace moestro {

// Two layers (one dense, one MoE) of odd sizes: heads straddle row groups.
weights::ModelSpec OddSpec();
// As OddSpec, but with the head sizes that FP8 requires; other sizes end inside scale blocks.
weights::ModelSpec BlockSpec();

class RandomCheckpoint {
 public:
  struct Tensor {
    std::string dtype;  // in the spelling of safetensors
    std::vector<int64_t> shape;
    std::string data;
  };

  // Linear layers are FP8 with scales if `fp8`, else BF16. In layer 0, norms are BF16 and the router F32; in layer 1
  // the reverse.
  RandomCheckpoint(const weights::ModelSpec& spec, bool fp8);

  const weights::ModelSpec& spec() const { return spec_; }
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const testing::TempDir& dir() const { return dir_; }

  // Writes the files. Tensors alternate between two shards, so that a scale and its weight are often in different ones.
  void Write() const;
  checkpoint::Checkpoint Open() const;

 private:
  weights::ModelSpec spec_;
  testing::TempDir dir_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace moestro
