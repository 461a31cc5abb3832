// What a batch's step takes on a machine that is not here: the list that decode runs, with times for its tasks.
#pragma once

#include <cstdint>

#include "services/decode/throughput/task_list.h"

namespace moestro::decode {

// Seconds of a micro-batch in a layer.
struct MicroBatchSeconds {
  double pre_attention = 0;
  double offload = 0;
  double host_attention = 0;
  double load_outputs = 0;
  double post_attention = 0;
  double weights = 0;  // of all micro-batches: loading what of a layer does not stay on the device
};

// CGOPipe in so many layers, all of them with routed experts; the first one's are there.
StepForecast SimulateCgoPipe(int64_t layers, int64_t micro_batches, const MicroBatchSeconds& seconds);

}  // namespace moestro::decode
