#include "common/tensor/fp8_codes.h"

#include "common/base/check.h"

namespace moestro {
namespace {

// How many of the 2^15 table entries hold each magnitude code 0x00..0x7e. A normal distribution with deviation 112,
// rounded to E4M3, each code at least once. The counts sum to 32768.
constexpr std::array<uint16_t, 127> kMagnitudeCounts = {
    1,    1,    1,    1,    1,    1,    1,    1,     // 0x00
    1,    1,    1,    1,    1,    1,    1,    1,     // 0x08
    1,    1,    1,    1,    1,    1,    1,    1,     // 0x10
    1,    2,    2,    2,    2,    2,    2,    2,     // 0x18
    3,    4,    4,    4,    4,    4,    4,    4,     // 0x20
    5,    7,    7,    7,    7,    7,    7,    7,     // 0x28
    11,   15,   15,   15,   15,   15,   15,   15,    // 0x30
    22,   29,   29,   29,   29,   29,   29,   29,    // 0x38
    44,   58,   58,   58,   58,   58,   58,   58,    // 0x40
    87,   117,  117,  117,  117,  117,  116,  116,   // 0x48
    175,  233,  233,  232,  232,  232,  232,  231,   // 0x50
    346,  461,  459,  458,  456,  454,  453,  450,   // 0x58
    671,  887,  876,  864,  852,  838,  824,  809,   // 0x60
    1183, 1519, 1447, 1371, 1293, 1213, 1133, 1052,  // 0x68
    1428, 1626, 1347, 1088, 861,  667,  507,  377,   // 0x70
    382,  279,  129,  55,   22,   8,    4,           // 0x78
};

MagnitudeTable BuildTable() {
  MagnitudeTable table;
  size_t at = 0;
  for (size_t code = 0; code < kMagnitudeCounts.size(); ++code) {
    for (int n = 0; n < kMagnitudeCounts[code]; ++n) table[at++] = static_cast<uint8_t>(code);
  }
  MOE_CHECK(at == table.size());
  return table;
}

}  // namespace

const MagnitudeTable& Fp8Magnitudes() {
  static const MagnitudeTable table = BuildTable();
  return table;
}

}  // namespace moestro
