#include "services/cli/paper/moe_lightning/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/checkpoint/config.h"
#include "common/roofline/work_count.h"

namespace moestro::cli {
namespace {

constexpr roofline::BatchWorkload kWorkload = {.prompt = 418, .generate = 128};
constexpr Schedule kAll[] = {Schedule::kCgoPipe, Schedule::kFlexGenCpu, Schedule::kFlexGen, Schedule::kWholeLayer};

// Of MoE-Lightning's T4.
roofline::Machine Machine() {
  return {.name = "t4",
          .device = {16e9, 220e9, 65e12},
          .host = {200e9, 50e9, 0.8e12},
          .devices = 1,
          .link_bytes_per_second = 8e9};
}

const weights::ModelSpec& Spec() {
  static const auto* const spec = new weights::ModelSpec(checkpoint::PublishedModel("mixtral-8x7b"));
  return *spec;
}

PipelineSeconds Simulate(const roofline::Machine& machine, Schedule schedule, int64_t micro_batches,
                         double resident_weights = 0) {
  return SimulateLayer(machine, Spec(), kWorkload,
                       {.micro_batch = 36, .micro_batches = micro_batches, .resident_weights = resident_weights},
                       schedule);
}

double WeightSeconds(const roofline::Machine& machine) {
  return static_cast<double>(Spec().num_experts) * roofline::CountModel(Spec(), DType::kBF16).layers[0].expert.bytes /
         machine.link_bytes_per_second;
}

TEST(Pipeline, NothingIsBusyForLongerThanTheLayer) {
  for (const Schedule schedule : kAll) {
    for (const int64_t micro_batches : {1, 2, 3, 14}) {
      const PipelineSeconds seconds = Simulate(Machine(), schedule, micro_batches);
      EXPECT_LE(std::max({seconds.device, seconds.host, seconds.to_device}), seconds.layer * (1 + 1e-12));
      EXPECT_GE(seconds.to_device, WeightSeconds(Machine()) * (1 - 1e-12)) << "every layer's weights come over";
    }
  }
}

// What is needed is there in time: the layer takes what its busiest resource takes.
TEST(Pipeline, CgoPipeWaitsForItsBusiestResourceOnly) {
  roofline::Machine slow_link = Machine(), slow_device = Machine(), slow_host = Machine();
  slow_link.link_bytes_per_second /= 10;
  slow_device.device.memory_bytes_per_second /= 100;
  slow_host.host.memory_bytes_per_second /= 100;
  const PipelineSeconds link = Simulate(slow_link, Schedule::kCgoPipe, 14);
  EXPECT_NEAR(link.layer, link.to_device, 0.01 * link.layer);
  const PipelineSeconds device = Simulate(slow_device, Schedule::kCgoPipe, 14);
  EXPECT_NEAR(device.layer, device.device, 0.01 * device.layer);
  const PipelineSeconds host = Simulate(slow_host, Schedule::kCgoPipe, 14);
  EXPECT_NEAR(host.layer, host.host, 0.01 * host.layer);
}

TEST(Pipeline, ALayerThatIsNotFetchedAheadTakesBothAfterEachOther) {
  const PipelineSeconds seconds = Simulate(Machine(), Schedule::kWholeLayer, 3);
  EXPECT_NEAR(seconds.layer, seconds.device + seconds.to_device, 1e-9);
}

// After its first micro-batch, for which the weights come, FlexGen waits for the slower of copies and device.
TEST(Pipeline, FlexGenWaitsAfterEachMicroBatch) {
  const PipelineSeconds one = Simulate(Machine(), Schedule::kFlexGen, 1),
                        ten = Simulate(Machine(), Schedule::kFlexGen, 10);
  EXPECT_GT(one.layer, WeightSeconds(Machine()));
  EXPECT_NEAR(one.layer, one.to_device, 1e-9) << "weights, and the cache of the next micro-batch";
  const double later = (ten.layer - one.layer) / 9;
  EXPECT_NEAR(later, std::max(one.device, one.to_device - WeightSeconds(Machine())), 1e-9);
}

// The order of Fig. 6 wherever each resource has something to do.
TEST(Pipeline, CgoPipeIsFastest) {
  for (const int64_t micro_batches : {4, 14, 40}) {
    const double cgo = Simulate(Machine(), Schedule::kCgoPipe, micro_batches).layer;
    for (const Schedule schedule : {Schedule::kFlexGenCpu, Schedule::kFlexGen, Schedule::kWholeLayer}) {
      EXPECT_LT(cgo, Simulate(Machine(), schedule, micro_batches).layer) << micro_batches;
    }
  }
}

TEST(Pipeline, WhatStaysOnTheDeviceIsNotCopied) {
  for (const Schedule schedule : kAll) {
    const PipelineSeconds all = Simulate(Machine(), schedule, 4), half = Simulate(Machine(), schedule, 4, 0.5);
    EXPECT_NEAR(all.to_device - half.to_device, WeightSeconds(Machine()) / 2, 1e-9);
  }
}

}  // namespace
}  // namespace moestro::cli
