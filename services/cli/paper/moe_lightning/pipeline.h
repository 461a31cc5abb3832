// A layer of a batch's decode step in virtual time (common/device/sim/world.h), under the schedules of Fig. 6 and that
// of DeepSpeed. What a formula leaves out is here: what waits for what, micro-batch by micro-batch.
#pragma once

#include "common/roofline/batch_policy.h"
#include "common/roofline/roofline.h"

namespace moestro::cli {

enum class Schedule {
  // MoE-Lightning: pages of the next layer's weights between hidden states, attention on the host two micro-batches
  // ahead of the experts.
  kCgoPipe,
  // S3: FlexGen with attention on the host. One micro-batch after the other; the next layer's weights in one piece,
  // with the first of them. Everything waits for everything after each micro-batch, as FlexGen does, and decode's own
  // S3 and S4 do not.
  kFlexGenCpu,
  // S4: FlexGen. Attention on the device; the next micro-batch's cache comes meanwhile. Waits likewise.
  kFlexGen,
  // DeepSpeed: a layer's weights come when the layer before is done. The cache is on the device.
  kWholeLayer,
};

struct PipelineSeconds {
  double layer = 0;
  // Of it, that each was busy.
  double device = 0;
  double host = 0;
  double to_device = 0;
};

// The machine's rates are taken as they are. A request sees its prompt and half of what it generates, as an average
// over all steps. Of the policy, micro-batches and what stays on the device count; the schedule says where attention
// is. Several devices are one, with their rates together. Weights of the type BF16.
PipelineSeconds SimulateLayer(const roofline::Machine& machine, const weights::ModelSpec& spec,
                              const roofline::BatchWorkload& workload, const roofline::BatchPolicy& policy,
                              Schedule schedule);

}  // namespace moestro::cli
