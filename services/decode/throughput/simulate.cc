#include "services/decode/throughput/simulate.h"

#include <numeric>

namespace moestro::decode {

StepForecast SimulateCgoPipe(int64_t layers, int64_t micro_batches, const MicroBatchSeconds& seconds) {
  StepShape shape{.layers = layers,
                  .streamed = std::vector<int64_t>(static_cast<size_t>(layers)),
                  .micro_batches = micro_batches,
                  .first_is_there = true};
  std::iota(shape.streamed.begin(), shape.streamed.end(), 0);
  return Forecast(ListTasks(BatchSchedule::kCgoPipe, shape), [&](const Task& task) {
    switch (task.kind) {
      case TaskKind::kPreAttention:
        return seconds.pre_attention;
      case TaskKind::kOffload:
        return seconds.offload;
      case TaskKind::kHostAttention:
        return seconds.host_attention;
      case TaskKind::kLoadOutputs:
        return seconds.load_outputs;
      case TaskKind::kLoadPage:
        return seconds.weights / static_cast<double>(micro_batches);
      default:
        return seconds.post_attention;
    }
  });
}

}  // namespace moestro::decode
