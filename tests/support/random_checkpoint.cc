#include "tests/support/random_checkpoint.h"

#include <cstring>
#include <random>
#include <utility>

#include "common/tensor/dtype.h"

namespace moestro {
namespace {

class RandomBytes {
 public:
  std::string Fp8(int64_t count) {  // all codes except the two NaNs
    std::string bytes;
    while (static_cast<int64_t>(bytes.size()) < count) {
      const auto code = static_cast<uint8_t>(random_());
      if ((code & 0x7f) != 0x7f) bytes.push_back(static_cast<char>(code));
    }
    return bytes;
  }
  std::string Bf16(int64_t count) {  // finite
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) Append(bytes, ToBf16(Number()));
    return bytes;
  }
  std::string F32(int64_t count, bool positive = false) {
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) Append(bytes, positive ? std::fabs(Number()) : Number());
    return bytes;
  }

 private:
  float Number() { return std::ldexp(static_cast<float>(static_cast<int32_t>(random_())), -31); }
  template <typename T>
  static void Append(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  std::mt19937 random_{7};
};

bool IsFirstLayer(const std::string& name) { return name.find("layers.0.") != std::string::npos; }

std::string DTypeOf(const model::ModelTensor& tensor, bool fp8) {
  switch (tensor.role) {
    case model::TensorRole::kEmbedding:
    case model::TensorRole::kHead:
      return "BF16";
    case model::TensorRole::kRouterBias:
      return "F32";
    case model::TensorRole::kNorm:
    case model::TensorRole::kBias:
      return IsFirstLayer(tensor.name) ? "BF16" : "F32";
    case model::TensorRole::kRouter:
      return IsFirstLayer(tensor.name) ? "F32" : "BF16";
    default:
      return fp8 ? "F8_E4M3" : "BF16";
  }
}

}  // namespace

weights::ModelSpec OddSpec() {
  weights::ModelSpec spec;
  std::string("deepseek_v3").copy(spec.family, sizeof(spec.family) - 1);
  spec.hidden_size = 70;
  spec.num_layers = 2;
  spec.num_heads = 3;
  spec.q_lora_rank = 33;
  spec.kv_lora_rank = 36;
  spec.qk_nope_head_dim = 20;
  spec.qk_rope_head_dim = 6;
  spec.v_head_dim = 25;
  spec.intermediate_size = 67;
  spec.moe_intermediate_size = 35;
  spec.num_experts = 5;
  spec.experts_per_token = 2;
  spec.num_shared_experts = 1;
  spec.first_dense_layers = 1;
  spec.vocab_size = spec.token_count = 131;
  return spec;
}

weights::ModelSpec BlockSpec() {
  weights::ModelSpec spec = OddSpec();
  spec.hidden_size = 201;
  spec.num_heads = 2;
  spec.kv_lora_rank = 256;
  spec.qk_nope_head_dim = 128;
  spec.v_head_dim = 128;
  spec.intermediate_size = 130;
  return spec;
}

RandomCheckpoint::RandomCheckpoint(const weights::ModelSpec& spec, bool fp8) : spec_(spec) {
  RandomBytes random;
  for (const model::ModelTensor& expected : model::CheckpointTensors(spec)) {
    const int64_t count = expected.elements();
    const std::string dtype = DTypeOf(expected, fp8);
    tensors_[expected.name] = {dtype, expected.shape(),
                               dtype == "F32"    ? random.F32(count)
                               : dtype == "BF16" ? random.Bf16(count)
                                                 : random.Fp8(count)};
    if (dtype != "F8_E4M3") continue;
    const std::vector<int64_t> blocks = {(expected.rows + 127) / 128, (expected.cols + 127) / 128};
    tensors_[expected.name + "_scale_inv"] = {"F32", blocks, random.F32(blocks[0] * blocks[1], true)};
  }
}

void RandomCheckpoint::Write() const {
  std::map<std::string, testing::SafetensorsBuilder> shards;
  int next = 0;
  for (const auto& [name, tensor] : tensors_) {
    shards[next++ % 2 == 0 ? "a.safetensors" : "b.safetensors"].Add(name, tensor.dtype, tensor.shape, tensor.data);
  }
  for (const auto& [file, builder] : shards) dir_.Write(file, builder.Build());
  dir_.Write("model.safetensors.index.json", testing::Index(shards));
  dir_.Write("config.json", "{}");
}

checkpoint::Checkpoint RandomCheckpoint::Open() const {
  auto checkpoint = checkpoint::Checkpoint::Open(dir_.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return std::move(checkpoint).value();
}

}  // namespace moestro
