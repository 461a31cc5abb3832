// Each table starts as a copy of the best one below it and overrides what its instruction set does better. A new
// instruction set needs a folder, an object library with its flags, a Fill function and a line in kTiers.
#include <array>
#include <cstddef>

#include "common/kernels/cpu/amx/kernels.h"
#include "common/kernels/cpu/avx2/kernels.h"
#include "common/kernels/cpu/avx512/kernels.h"
#include "common/kernels/cpu/avx512_bf16/kernels.h"
#include "common/kernels/cpu/avx512_vnni/kernels.h"
#include "common/kernels/cpu/avx_vnni/kernels.h"
#include "common/kernels/cpu/hand_over.h"
#include "common/kernels/cpu/kernels.h"
#include "common/kernels/cpu/ref/kernels.h"
#include "common/platform/cpu/cpu_features.h"
#include "common/platform/cpu/tiles.h"

namespace moestro {
namespace {

struct Tier {
  std::string_view isa;
  bool (*usable)(const CpuFeatures& cpu);
  void (*fill)(CpuKernels& table);
};

void FillRef(CpuKernels& table) {
  table.linear = ref::Linear;
  table.linear_add = ref::LinearAdd;
  table.encode_inputs = ref::EncodeInputs;
  table.linear_coded = ref::LinearCoded;
  table.router_logits = ref::RouterLogits;
  table.rms_norm = ref::RmsNorm;
  table.layer_norm = ref::LayerNorm;
  table.silu_mul = ref::SiluMul;
  table.clamped_swiglu = ref::ClampedSwiglu;
  table.to_bf16 = ref::ToBf16;
  table.axpy = ref::Axpy;
  table.axpby = ref::Axpby;
  table.pack_keys = ref::PackKeys;
  table.pack_values = ref::PackValues;
  table.softmax_step = ref::SoftmaxStep;
}

void FillAvx2(CpuKernels& table) {
  table.linear = avx2::Linear;
  table.linear_add = avx2::LinearAdd;
  table.encode_inputs = avx2::EncodeInputs;
  table.linear_coded = avx2::LinearCoded;
  table.router_logits = avx2::RouterLogits;
  table.rms_norm = avx2::RmsNorm;
  table.layer_norm = avx2::LayerNorm;
  table.silu_mul = avx2::SiluMul;
  table.clamped_swiglu = avx2::ClampedSwiglu;
  table.to_bf16 = avx2::ToBf16;
  table.axpy = avx2::Axpy;
  table.axpby = avx2::Axpby;
  table.pack_keys = avx2::PackKeys;
  table.pack_values = avx2::PackValues;
  table.softmax_step = avx2::SoftmaxStep;
}

void FillAvxVnni(CpuKernels& table) {
  table.encode_inputs = avx_vnni::EncodeInputs;
  table.linear_coded = avx_vnni::LinearCoded;
}

void FillAvx512(CpuKernels& table) {
  table.linear = avx512::Linear;
  table.linear_add = avx512::LinearAdd;
  table.encode_inputs = avx512::EncodeInputs;
  table.linear_coded = avx512::LinearCoded;
  table.router_logits = avx512::RouterLogits;
  table.rms_norm = avx512::RmsNorm;
  table.layer_norm = avx512::LayerNorm;
  table.silu_mul = avx512::SiluMul;
  table.clamped_swiglu = avx512::ClampedSwiglu;
  table.to_bf16 = avx512::ToBf16;
  table.axpy = avx512::Axpy;
  table.axpby = avx512::Axpby;
  table.pack_keys = avx512::PackKeys;
  table.pack_values = avx512::PackValues;
  table.softmax_step = avx512::SoftmaxStep;
}

void FillAvx512Vnni(CpuKernels& table) {
  table.encode_inputs = avx512_vnni::EncodeInputs;
  table.linear_coded = avx512_vnni::LinearCoded;
}

void FillAvx512Bf16(CpuKernels& table) {
  table.linear = OwnOrBefore<MultipliesInBf16, avx512_bf16::Linear, avx512::Linear>;
  table.linear_add = OwnOrBefore<MultipliesInBf16, avx512_bf16::LinearAdd, avx512::LinearAdd>;
  table.linear_coded = CodedBlocksOrBefore<avx512_bf16::LinearSpans, avx512_vnni::LinearCoded>;
  table.attend_token = avx512_bf16::AttendToken;
}

void FillAmx(CpuKernels& table) {
  table.linear = OwnOrBefore<MultipliesInBf16, amx::Linear, avx512::Linear>;
  table.linear_add = OwnOrBefore<MultipliesInBf16, amx::LinearAdd, avx512::LinearAdd>;
  table.linear_coded = ManyCodedOrBefore<amx::LinearCoded, avx512_bf16::LinearSpans>;
  table.attend_token = amx::AttendToken;
}

// Slowest first.
constexpr std::array kTiers = {
    Tier{"ref", [](const CpuFeatures&) { return true; }, FillRef},
    Tier{"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; }, FillAvx2},
    Tier{"avx_vnni", [](const CpuFeatures& cpu) { return cpu.avx_vnni; }, FillAvxVnni},
    Tier{"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; }, FillAvx512},
    Tier{"avx512_vnni", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }, FillAvx512Vnni},
    Tier{"avx512_bf16", [](const CpuFeatures& cpu) { return cpu.avx512_vbmi && cpu.avx512_bf16 && cpu.avx512_vnni; },
         FillAvx512Bf16},
    Tier{"amx",
         [](const CpuFeatures& cpu) {
           return cpu.avx512_vbmi && cpu.avx512_bf16 && cpu.avx512_vnni && cpu.avx512_gfni && cpu.amx_bf16 &&
                  cpu.amx_int8 && AllowTiles();
         },
         FillAmx},
};

struct Tables {
  std::array<CpuKernels, kTiers.size()> tables;
  std::size_t count = 0;
};

Tables BuildTables() {
  const CpuFeatures cpu = DetectCpuFeatures();
  Tables built;
  for (const Tier& tier : kTiers) {
    if (!tier.usable(cpu)) continue;
    CpuKernels table = built.count == 0 ? CpuKernels{} : built.tables[built.count - 1];
    table.isa = tier.isa;
    tier.fill(table);
    built.tables[built.count++] = table;
  }
  return built;
}

}  // namespace

std::vector<const CpuKernels*> AvailableKernels() {
  static const Tables built = BuildTables();
  std::vector<const CpuKernels*> available;
  for (std::size_t i = 0; i < built.count; ++i) available.push_back(&built.tables[i]);
  return available;
}

std::vector<std::string_view> CompiledKernels() {
  std::vector<std::string_view> names;
  for (const Tier& tier : kTiers) names.push_back(tier.isa);
  return names;
}

}  // namespace moestro
