// What a routed expert takes on each of three domains: TriMoE, section 4.2, Eq. 1 to 4. The domains are a device, the
// CPU, and processors near the data: one on each DIMM of the CPU's memory.
//
// All experts' weights lie on the DIMMs, striped over all of them or localised on one; the device holds copies of some.
#pragma once

#include <cstdint>
#include <limits>

#include "common/experts/expert_costs.h"

namespace moestro::experts {

// Where an expert's weights lie.
struct ExpertPlace {
  static constexpr int8_t kStriped = -1;
  static constexpr int8_t kNotHeld = -1;
  int8_t dimm = kStriped;
  int8_t slot = kNotHeld;  // of the device, in the expert's layer

  bool striped() const { return dimm == kStriped; }
  bool held() const { return slot != kNotHeld; }
};
inline constexpr int64_t kMostDimms = std::numeric_limits<int8_t>::max();
inline constexpr int64_t kMostSlots = std::numeric_limits<int8_t>::max();

// Rates that a machine reaches.
struct DomainRates {
  struct Processor {
    double flops_per_second = 0;  // in products with an expert's weights
    double bytes_per_second = 0;  // from its own memory
  };
  Processor gpu;
  Processor cpu;                          // from all DIMMs together, evenly
  Processor dimm;                         // of one, within it
  int64_t dimms = 0;                      // 1 to kMostDimms
  double dimm_host_bytes_per_second = 0;  // from one DIMM to the host: its channel's rate
  double bus_bytes_per_second = 0;        // from the host's memory to the device
  double link_bytes_per_second = 0;       // between DIMMs: what one gives or takes over all its links
};

// What a read of an expert by the device or the CPU takes from a DIMM's own processor, which then waits (Eq. 6). The
// paper does not say.
enum class Contention {
  kInternal,  // the bytes at the DIMM's internal rate: its ranks work in parallel, and a burst occupies one
  kHost,      // the bytes at the channel's rate: the DIMM does nothing else meanwhile
};

// Seconds of one expert.
struct DomainCosts {
  int64_t dimms = 0;
  SecondsByRows gpu;          // f_calc_gpu: of one that the device holds
  SecondsByRows cpu;          // f_calc_cpu: of the products alone
  SecondsByRows near;         // f_calc_ndp: likewise, of one DIMM's processor
  double bus = 0;             // T_PCIe
  double read_striped = 0;    // T_DRAM, by the device or the CPU
  double read_localised = 0;  // the same of one DIMM
  double near_read = 0;       // T_Internal
  double busy_striped = 0;    // of every DIMM, in a read of a striped expert
  double busy_localised = 0;  // of its DIMM, in a read of a localised one
  double link = 0;            // from one DIMM to another
};

// Products of an expert with its `elements` weights in `bytes`. The device reads weights and computes at the same
// time, so its table is a roofline.
DomainCosts CostsOf(const DomainRates& rates, double elements, double bytes, Contention contention);

// Eq. 1 to 4. `near` is infinite for a striped expert, which no DIMM has.
struct ExpertSeconds {
  double gpu = 0;
  double cpu = 0;
  double near = 0;
};
// rows: 1 or more.
ExpertSeconds SecondsOf(const DomainCosts& costs, int32_t rows, ExpertPlace place);

}  // namespace moestro::experts
