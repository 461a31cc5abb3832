#include "common/platform/cpu/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace moestro {
namespace {

// The first CPU's flags; the kernel omits those whose registers it does not save.
std::set<std::string> KernelFlags() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(CpuFeatures, AgreeWithTheKernel) {
  const std::set<std::string> flags = KernelFlags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo tells no flags";
  const auto all = [&](const std::set<std::string>& names) {
    return std::includes(flags.begin(), flags.end(), names.begin(), names.end());
  };
  const bool avx512 = all({"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"});
  const CpuFeatures features = DetectCpuFeatures();
  EXPECT_EQ(features.avx2, all({"avx2", "fma", "f16c"}));
  EXPECT_EQ(features.avx_vnni, features.avx2 && all({"avx_vnni"}));
  EXPECT_EQ(features.avx512, avx512);
  EXPECT_EQ(features.avx512_vbmi, avx512 && all({"avx512vbmi"}));
  EXPECT_EQ(features.avx512_gfni, avx512 && all({"gfni"}));
  EXPECT_EQ(features.avx512_bf16, avx512 && all({"avx512_bf16"}));
  EXPECT_EQ(features.avx512_vnni, avx512 && all({"avx512_vnni"}));
  EXPECT_EQ(features.amx_bf16, all({"amx_tile", "amx_bf16"}));
  EXPECT_EQ(features.amx_int8, all({"amx_tile", "amx_int8"}));
}

}  // namespace
}  // namespace moestro
