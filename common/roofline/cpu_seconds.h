// Time of a prompt and of a decode step on a machine without a GPU, from the counts of work_count.h. Each part reads
// its weights, then multiplies; both take their time one after the other. For an MoE layer of 4 to 64 tokens per expert
// this gives a measured time to within 12 % (deploy/hardware/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/roofline/work_count.h"
#include "common/tensor/dtype.h"
#include "common/weights/model_spec.h"

namespace moestro::roofline {

// Rates are of one socket, from the data sheet. Fractions say how much of them this project's kernels reach.
struct CpuMachine {
  std::string name;
  double sockets = 0;
  double memory_bytes_per_second = 0;
  double bf16_flops_per_second = 0;  // of the fastest instruction
  double int8_ops_per_second = 0;    // likewise
  double link_bytes_per_second = 0;  // between two sockets, in one direction, all links
  double memory_fraction = 1;        // of the memory bandwidth, by plain reading
  // Of plain reading, in decode; by type of the weights.
  double fp8_decode_fraction = 1;
  double int8_decode_fraction = 1;
  double bf16_decode_fraction = 1;
  // In products of many rows: of the BF16 rate, for INT8 of the INT8 rate.
  double fp8_linear_fraction = 1;
  double int8_linear_fraction = 1;
  double bf16_linear_fraction = 1;
  double attention_fraction = 1;  // of the BF16 rate, in attention
  double phase_seconds = 0;       // from the end of a parallel phase's work to the beginning of the next
};

struct CpuSeconds {
  double read = 0;      // weights, keys and values from memory
  double compute = 0;   // products
  double exchange = 0;  // inputs, keys and values from the other sockets' memory
  double wait = 0;      // for the last worker of each phase

  double total() const { return read + compute + exchange + wait; }
};

// A model whose linear layers have the type `format`: kF8E4M3, kI8 or kBF16. The head stays BF16, and so does MLA's
// kv_b beside I8: the segment has it in 16 bits.
ModelCount CountModelInFormat(const weights::ModelSpec& spec, DType format);

// The layers of a model, one by one. Tokens spread evenly over the experts.
class CpuLayers {
 public:
  // machine and spec outlive it. format: as above.
  CpuLayers(const CpuMachine& machine, const weights::ModelSpec& spec, DType format);
  // Of a pass of `rows` rows after `before` others.
  CpuSeconds Layer(int64_t index, model::MlaForm form, double before, double rows) const;
  CpuSeconds Head() const;  // for one row

 private:
  const CpuMachine& machine_;
  const weights::ModelSpec& spec_;
  const DType format_;
  const ModelCount count_;
  std::vector<double> input_bytes_;  // of a row, by layer
};

// A prompt of `tokens` tokens from position 0, un-absorbed, in one pass. Tokens spread evenly over the experts.
CpuSeconds PromptSeconds(const CpuMachine& machine, const weights::ModelSpec& spec, DType format, int64_t tokens);

// One token of one sequence at position `position`, absorbed.
CpuSeconds DecodeSeconds(const CpuMachine& machine, const weights::ModelSpec& spec, DType format, int64_t position);

}  // namespace moestro::roofline
