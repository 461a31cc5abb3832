#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/platform/cpu/cpu_features.h"
#include "common/platform/cpu/tiles.h"
#include "common/tensor/dtype.h"
#include "loadtest/bench/baselines/fp8_convert.h"
#include "loadtest/bench/baselines/libraries.h"
#include "loadtest/bench/baselines/paper_fp8.h"
#include "loadtest/bench/baselines/plain_mla.h"
#include "loadtest/bench/memory.h"
#include "loadtest/bench/probes/select.h"

namespace moestro::bench {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kCols = 384;

struct BaselineProduct {
  BaselineProduct() : codes(kRows * kCols), scales(MakeScales(kRows, kCols, 0.05)), input(MakeInputs(kCols)) {
    WorkerPool pool(1);
    WeightPattern(DType::kF8E4M3).Fill(pool, codes.data(), static_cast<int64_t>(codes.size()));
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      const int64_t block = i / kCols / kScaleBlock * (kCols / kScaleBlock) + i % kCols / kScaleBlock;
      weights.push_back(FromE4M3(codes[i]) * scales[block]);
    }
    for (int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (int64_t col = 0; col < kCols; ++col) sum += double{weights[row * kCols + col]} * FromBf16(input[col]);
      truth.push_back(sum);
    }
  }

  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<uint16_t> input;
  std::vector<float> weights;
  std::vector<double> truth;  // of deviation 0.05 sqrt(kCols), about 1
};

// `tolerance`: what rounding of weights and inputs to BF16 (2^-9 each) makes of a sum of kCols products, and more.
void ExpectClose(const float* output, const std::vector<double>& truth, double tolerance) {
  for (size_t row = 0; row < truth.size(); ++row) EXPECT_NEAR(output[row], truth[row], tolerance) << row;
}

class PaperKernelTest : public ::testing::TestWithParam<void (*)(const PaperGemv&, int64_t, int64_t)> {};

TEST_P(PaperKernelTest, ComputesTheProduct) {
  if (!DetectCpuFeatures().avx512_bf16) GTEST_SKIP() << "no AVX512_BF16";
  const BaselineProduct product;
  std::vector<float> output(kRows, NAN);
  const PaperGemv gemv = {product.codes.data(), product.scales.data(), kCols, product.input.data(), output.data()};
  GetParam()(gemv, 0, 64);
  EXPECT_TRUE(std::isnan(output[64]));
  GetParam()(gemv, 64, kRows);
  ExpectClose(output.data(), product.truth, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Paper, PaperKernelTest,
                         ::testing::Values(PaperStandardGemv, PaperPostScalingGemv, SignExtendingGemv));

// The place of code i's value where a conversion keeps the order of a packed tile's operands.
int64_t OperandPlace(int64_t i) { return i / 64 * 64 + i % 16 / 8 * 32 + i % 64 / 16 * 8 + i % 8; }

// All 256 codes, once with exceptions marked and once, for the steps that have none, only normal numbers.
TEST(Fp8Conversions, AreExactButForTheOneThatSkips) {
  const CpuFeatures cpu = DetectCpuFeatures();
  if (!cpu.avx512_vbmi || !cpu.avx512_gfni) GTEST_SKIP() << "no AVX-512 with VBMI and GFNI";
  std::vector<uint8_t> codes(2 * kFp8Step);
  for (int64_t i = 0; i < kFp8Step; ++i) {
    const auto code = static_cast<uint8_t>(i);
    const bool normal = (i & 0x7f) >= 8 && (i & 0x7f) < 0x7f;
    codes[i] = code;
    codes[kFp8Step + i] = normal ? code : 0x38;
  }
  const uint32_t exceptions = 1;  // of the first step
  const Fp8Codes input = {codes.data(), std::ssize(codes), &exceptions};
  struct Conversion {
    void (*convert)(const Fp8Codes&, uint16_t*);
    bool packed;
    bool skips;
  };
  for (const Conversion& c : {Conversion{Fp8ByGather, false, false}, Conversion{Fp8ByArithmetic, false, false},
                              Conversion{Fp8Skipping, false, true}, Conversion{Fp8ByByteTables, true, false},
                              Conversion{Fp8ByBitMatrices, true, false}}) {
    std::vector<uint16_t> values(codes.size());
    c.convert(input, values.data());
    for (int64_t i = 0; i < std::ssize(codes); ++i) {
      const int magnitude = codes[i] & 0x7f;
      const uint16_t value = values[c.packed ? OperandPlace(i) : i];
      const bool is_skipped = c.skips && (magnitude == 0x7f || (magnitude > 0 && magnitude < 8));
      EXPECT_EQ(value == ToBf16(FromE4M3(codes[i])), !is_skipped) << int{codes[i]} << " " << value;
    }
  }
}

TEST(PlainMla, ComputesScoresAndSums) {
  if (!DetectCpuFeatures().avx512_bf16) GTEST_SKIP() << "no AVX512_BF16";
  constexpr int64_t kTokens = 64;
  const std::vector<uint16_t> rows = MakeInputs((kTokens + 1) * kPlainMlaKey);
  const uint16_t* query = rows.data() + kTokens * kPlainMlaKey;
  std::vector<float> scores(kTokens), sums(kPlainMlaLatent, 1.0f);
  PlainMlaScores(query, rows.data(), kTokens, scores.data());
  std::vector<uint16_t> weights;
  for (int64_t t = 0; t < kTokens; ++t) {
    double truth = 0;
    for (int64_t k = 0; k < kPlainMlaKey; ++k) {
      truth += double{FromBf16(rows[t * kPlainMlaKey + k])} * FromBf16(query[k]);
    }
    EXPECT_NEAR(scores[t], truth, kPlainMlaKey * 3 * 0x1p-23 * 8) << t;  // roundings of F32 sums of products up to 3
    weights.push_back(ToBf16(1.0f / static_cast<float>(t + 1)));
  }
  PlainMlaValues(weights.data(), rows.data(), kTokens, sums.data());
  for (int64_t i = 0; i < kPlainMlaLatent; ++i) {
    double truth = 1;
    for (int64_t t = 0; t < kTokens; ++t) {
      truth += double{FromBf16(weights[t])} * FromBf16(rows[t * kPlainMlaKey + i]);
    }
    EXPECT_NEAR(sums[i], truth, kTokens * 9 * 0x1p-23) << i;
  }
}

TEST(GemvLibraries, ThoseThatWereBuiltComputeTheProduct) {
  const BaselineProduct product;
  std::vector<float> input;
  for (const uint16_t x : product.input) input.push_back(FromBf16(x));
  for (const char* plugin : {"openblas", "onednn"}) {
    const auto library = LoadGemvLibrary(plugin);
    if (!library.ok()) {
      EXPECT_TRUE(absl::IsFailedPrecondition(library.status()));
      continue;
    }
    void* gemv = (*library)->create(kRows, kCols, product.weights.data(), input.data(), 1);
    if (gemv == nullptr) continue;  // no such format on this CPU
    (*library)->run(gemv);
    ExpectClose((*library)->output(gemv), product.truth, 0.02);
    (*library)->destroy(gemv);
    EXPECT_STRNE((*library)->describe(), "");
  }
}

TEST(GemvLibraries, AnUnknownPluginSaysWhatIsMissing) {
  EXPECT_TRUE(absl::IsFailedPrecondition(LoadGemvLibrary("mkl").status()));
}

std::vector<const Probes*> UsableProbes() {
  const CpuFeatures cpu = DetectCpuFeatures();
  std::vector<const Probes*> usable = {&kProbesSse2};
  if (cpu.avx2) usable.push_back(&kProbesAvx2);
  if (cpu.avx_vnni) usable.push_back(&kProbesAvxVnni);
  if (cpu.avx512) usable.push_back(&kProbesAvx512);
  if (cpu.avx512_vnni) usable.push_back(&kProbesAvx512Vnni);
  if (cpu.avx512_bf16) usable.push_back(&kProbesAvx512Bf16);
  if (cpu.amx_bf16 && AllowTiles()) usable.push_back(&kProbesAmx);
  return usable;
}

TEST(Probes, ReadDependsOnEveryByteAndCopyCopies) {
  constexpr int64_t kBytes = 4096;
  const auto from = HugeBuffer::Allocate(kBytes);
  const auto to = HugeBuffer::Allocate(kBytes);
  ASSERT_TRUE(from.ok() && to.ok());
  for (const Probes* probes : UsableProbes()) {
    for (const ReadAhead& ahead : {ReadAhead{}, ReadAhead{.l1 = 1024, .l2 = 4096}}) {
      const uint64_t before = probes->read(from->data(), kBytes, ahead);
      for (int64_t i = 0; i < kBytes; ++i) {
        from->data()[i] ^= 1;
        EXPECT_NE(probes->read(from->data(), kBytes, ahead), before) << probes->isa << " byte " << i;
        from->data()[i] ^= 1;
      }
    }
    for (int64_t i = 0; i < kBytes; ++i) from->data()[i] = static_cast<uint8_t>(i * 7 + probes->isa[3]);
    probes->copy(to->data(), from->data(), kBytes);
    EXPECT_TRUE(std::equal(to->data(), to->data() + kBytes, from->data())) << probes->isa;
    probes->dot(1);
    EXPECT_GT(probes->dot_operations, 0);
  }
}

TEST(Probes, TheBestThatTheCpuHasIsChosen) {
  EXPECT_EQ(&SelectVectorProbes({}), &kProbesSse2);
  EXPECT_EQ(&SelectVectorProbes({.avx2 = true}), &kProbesAvx2);
  EXPECT_EQ(&SelectVectorProbes({.avx2 = true, .avx512 = true}), &kProbesAvx512);
  EXPECT_EQ(&SelectVectorProbes({.avx2 = true, .avx512 = true, .avx512_bf16 = true}), &kProbesAvx512Bf16);
}

TEST(Probes, BytesAreTheCeilingOfCodedInputsWhereTheCpuHasThem) {
  EXPECT_EQ(SelectByteProbes({.avx2 = true, .avx512 = true}), nullptr);
  EXPECT_EQ(SelectByteProbes({.avx2 = true, .avx_vnni = true}), &kProbesAvxVnni);
  EXPECT_EQ(SelectByteProbes({.avx2 = true, .avx_vnni = true, .avx512 = true, .avx512_vnni = true}),
            &kProbesAvx512Vnni);
}

TEST(Probes, TilesAreTheCeilingOfKernelsThatUseThem) {
  const CpuFeatures cpu = {.avx2 = true, .avx512 = true, .avx512_bf16 = true};
  EXPECT_EQ(&SelectProbes(cpu, "amx"), &kProbesAmx);
  EXPECT_EQ(&SelectProbes(cpu, "avx512_bf16"), &kProbesAvx512Bf16);
}

}  // namespace
}  // namespace moestro::bench
