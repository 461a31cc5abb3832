// What a layer's experts take on the CPU, on a device and on the bus: HybriMoE, section IV-A and Fig. 3 (e, f).
#pragma once

#include <cstdint>
#include <vector>

namespace moestro::experts {

// Seconds of an expert for any number of rows, from those for 1, 2, 4, ... rows: straight lines between them, and
// proportional to the rows behind the last.
class SecondsByRows {
 public:
  SecondsByRows() = default;  // 0 for any number
  explicit SecondsByRows(std::vector<double> powers_of_two) : seconds_(std::move(powers_of_two)) {}
  double At(int64_t rows) const;  // rows: 1 or more

 private:
  std::vector<double> seconds_;
};

struct ExpertCosts {
  SecondsByRows host;         // of an expert on the CPU
  double host_start = 0;      // more, of a pass's first one
  double host_beside = 1;     // times as long as `host` says an expert takes while the device computes too
  SecondsByRows device;       // of an expert that the device holds, while the CPU computes too
  double device_start = 0;    // of inputs to the device, of outputs back and of waiting, once a pass
  SecondsByRows shared = {};  // of the shared expert for a pass's rows, which the device computes before them
  double launch = 0;          // of giving the device its work, before the CPU begins, once a pass
  double load = 0;            // of an expert to the device
  double load_start = 0;      // more, of a pass's first load: until it begins, and until the device knows that it ended
  double between = 0;         // from the end of a layer's experts to the next layer's: attention, while the bus is idle
};

}  // namespace moestro::experts
