// Where a checkpoint keeps a tensor of the model: under which name, alone or as a part of a larger one. Internal to
// this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/two_tensors.h"
#include "common/model/schema.h"

namespace moestro::checkpoint {

// A run of whole rows of the published tensor: of all of it, or of one of the matrices in it.
struct TensorPlace {
  std::string name;            // as published, with the prefix of a wrapper
  std::vector<int64_t> shape;  // that the published tensor must have; [matrices, rows, columns] if it has several
  int64_t matrix = 0;
  int64_t row = 0;          // the first in the matrix
  bool transposed = false;  // it has the tensor's columns as rows
  int64_t first_col = 0;    // of the published columns, where these are the tensor's outputs
  int64_t output_step = 1;  // from one of the tensor's outputs to the next: 2 where gate and up take turns
  // Codes and scales are two tensors, with these ends of their names; null: the weight is one tensor.
  const TwoTensors* two_tensors = nullptr;
};

class TensorLookup {
 public:
  // `checkpoint` must outlive this.
  TensorLookup(const Checkpoint& checkpoint, int64_t experts);

  // The place where the checkpoint has the tensor; else the one where it should be. In this order:
  //   1. the name of the family
  //   2. experts in one tensor: <experts>.gate_up_proj [experts, 2 width, hidden], gate rows first, and
  //      <experts>.down_proj [experts, hidden, width]
  //   3. both with the segment's name, which the reference library writes for every family if told so
  // Under each name first as one tensor, then as two.
  // `tensor`: of the segment; `part`: what its family makes of it.
  TensorPlace Find(const model::ModelTensor& tensor, const model::PublishedPart& part) const;

  // Without the prefix of a wrapper.
  std::string Plain(std::string_view name) const;

 private:
  std::string Published(const std::string& name) const;
  // The place, if the checkpoint has it.
  std::optional<TensorPlace> AsOneOrTwo(TensorPlace place) const;
  std::optional<TensorPlace> Fused(const model::ModelTensor& tensor, const std::string& name) const;

  const Checkpoint& checkpoint_;
  int64_t experts_;
  std::string_view plain_prefix_;    // of names in a text model on its own
  std::string_view wrapper_prefix_;  // takes its place in this checkpoint
};

}  // namespace moestro::checkpoint
