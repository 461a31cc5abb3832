#include "common/device/sim/sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace moestro::device {
namespace {

HardwareSpec Simple() {
  return {.name = "simple",
          .gpu_memory_bytes = 1000,
          .gpu_memory_bytes_per_second = 100,
          .gpu_processors = 2,
          .fp8_flops_per_second = 400,
          .bf16_flops_per_second = 200,
          .copy_bytes_per_second = 10,
          .copy_seconds = 1,
          .launch_seconds = 0.25,
          .fp8_linear_fraction = 0.5,
          .bf16_linear_fraction = 0.25,
          .attention_fraction = 0.25,
          .memory_fraction = 0.5};
}

TEST(SimDevice, KernelsTakeTheLongerOfProductsAndMemory) {
  const HardwareSpec hardware = Simple();
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.fp8_flops = 200, .kernels = 0}), 1);
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.bf16_flops = 200, .kernels = 0}), 4);
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.attention_flops = 200, .kernels = 0}), 4);
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.fp8_flops = 200, .memory_bytes = 100, .kernels = 2}), 2.5);
}

TEST(SimDevice, EachLaunchEndsWithHalfAWaveOfTiles) {
  HardwareSpec hardware = Simple();
  const double wave = 2 * 2 * 128 * 128;  // operations of one tile on each of two processors, per unit of depth
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.fp8_depth = 50, .kernels = 0}), 50 * wave / 2 / 200);
  EXPECT_DOUBLE_EQ(KernelSeconds(hardware, {.bf16_flops = 100, .bf16_depth = 50, .kernels = 0}),
                   (100 + 50 * wave / 2) / 50);
}

TEST(SimDevice, ElementwiseWorkComesOnTop) {
  EXPECT_DOUBLE_EQ(
      KernelSeconds(Simple(), {.fp8_flops = 200, .memory_bytes = 50, .elementwise_bytes = 100, .kernels = 0}), 3);
}

TEST(SimDevice, HostMemoryThatKernelsUseComesOnTop) {
  EXPECT_DOUBLE_EQ(KernelSeconds(Simple(), {.fp8_flops = 200, .kernels = 0, .host_bytes = 20, .bus_trips = 2}),
                   3 + 2 * kBusTripSeconds);
}

TEST(SimDevice, KernelsOfAllStreamsTakeTurns) {
  const auto device = NewSimDevice(Simple());
  const auto a = device->NewStream("a").value();
  const auto b = device->NewStream("b").value();
  const auto done = device->NewEvent().value();
  const Kernel second = {.name = "second", .cost = {.fp8_flops = 200, .kernels = 0}, .run = {}};
  ASSERT_TRUE(a->Launch(second).ok());
  ASSERT_TRUE(b->Launch(second).ok());
  ASSERT_TRUE(b->Record(*done).ok());
  EXPECT_DOUBLE_EQ(done->Seconds(), 2);
  ASSERT_TRUE(a->Launch(second).ok());
  ASSERT_TRUE(a->Record(*done).ok());
  EXPECT_DOUBLE_EQ(done->Seconds(), 3);
}

TEST(SimDevice, WorkBeginsWhenAllItWaitsForIsDone) {
  const auto device = NewSimDevice(Simple());
  const auto loads = device->NewStream("loads").value();
  const auto computes = device->NewStream("computes").value();
  const auto loaded = device->NewEvent().value();
  const auto done = device->NewEvent().value();
  ASSERT_TRUE(loads->CopyToDevice(nullptr, nullptr, 20).ok());  // 1 + 2 s
  ASSERT_TRUE(loads->Record(*loaded).ok());
  ASSERT_TRUE(computes->Launch({.name = "k", .cost = {.fp8_flops = 150}, .run = {}}).ok());  // until 1 s
  ASSERT_TRUE(computes->WaitFor(*loaded).ok());
  ASSERT_TRUE(computes->Launch({.name = "k", .cost = {.fp8_flops = 150}, .run = {}}).ok());
  ASSERT_TRUE(computes->Record(*done).ok());
  EXPECT_DOUBLE_EQ(device->Now(), 0);
  EXPECT_TRUE(done->Wait().ok());
  EXPECT_DOUBLE_EQ(loaded->Seconds(), 3);
  EXPECT_DOUBLE_EQ(done->Seconds(), 4);
  EXPECT_DOUBLE_EQ(device->Now(), 4);
}

TEST(SimDevice, ThreadsHaveTimesOfTheirOwnUntilTheyMeet) {
  const auto device = NewSimDevice(Simple());
  device->AdvanceTo(7);
  std::thread([&] {
    EXPECT_DOUBLE_EQ(device->Now(), 0);
    device->AdvanceTo(5);
    device->AdvanceTo(3);
    EXPECT_DOUBLE_EQ(device->Now(), 5);
  }).join();
  EXPECT_DOUBLE_EQ(device->Now(), 7);
  EXPECT_DOUBLE_EQ(NewSimDevice(Simple())->Now(), 0);
}

TEST(SimDevice, DirectionsOfTheBusAreSharedByStreamsAndIndependent) {
  const auto device = NewSimDevice(Simple());
  const auto a = device->NewStream("a").value();
  const auto b = device->NewStream("b").value();
  const auto c = device->NewStream("c").value();
  ASSERT_TRUE(a->CopyToDevice(nullptr, nullptr, 20).ok());
  ASSERT_TRUE(b->CopyToDevice(nullptr, nullptr, 10).ok());
  ASSERT_TRUE(c->CopyToHost(nullptr, nullptr, 10).ok());
  ASSERT_TRUE(c->Synchronize().ok());
  EXPECT_DOUBLE_EQ(device->Now(), 2);
  ASSERT_TRUE(b->Synchronize().ok());
  EXPECT_DOUBLE_EQ(device->Now(), 4);
}

// Threads may request copies of a few bytes in any order: they wait for no others, and no others for them.
TEST(SimDevice, CopiesShorterThanTheirLatencyTakeNoTurns) {
  const auto device = NewSimDevice(Simple());
  const auto weights = device->NewStream("weights").value();
  const auto counts = device->NewStream("counts").value();
  const auto end = [](Stream& stream, Device& of) {
    const auto event = of.NewEvent().value();
    EXPECT_TRUE(stream.Record(*event).ok());
    return event->Seconds();
  };
  ASSERT_TRUE(weights->CopyToDevice(nullptr, nullptr, 100).ok());
  ASSERT_TRUE(counts->CopyToDevice(nullptr, nullptr, 5).ok());
  EXPECT_DOUBLE_EQ(end(*weights, *device), 11);
  EXPECT_DOUBLE_EQ(end(*counts, *device), 1.5);
  ASSERT_TRUE(weights->CopyToDevice(nullptr, nullptr, 10).ok());
  EXPECT_DOUBLE_EQ(end(*weights, *device), 13);
}

TEST(SimDevice, CopiesToItReadMemoryThatOthersReadToo) {
  World world;
  const size_t memory =
      world.Shared(15, {{.name = "copies", .rate = 10}, {.name = "another", .requesters = 2, .rate = 15}});
  const World::Share copies{memory, 0}, another{memory, 1};
  world.Begin({&another, 1});
  const World::Amount read[] = {{another, 30}};
  EXPECT_DOUBLE_EQ(world.Take(0, {}, read), 2);
  world.Begin({&copies, 1});
  const auto device = NewSimDevice(Simple(), {world, "gpu", copies});
  const auto stream = device->NewStream("a").value();
  ASSERT_TRUE(stream->CopyToDevice(nullptr, nullptr, 25).ok());  // from 1 s; 5 a second until 2 s, then 10
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_DOUBLE_EQ(device->Now(), 4);
  ASSERT_TRUE(stream->CopyToHost(nullptr, nullptr, 10).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_DOUBLE_EQ(device->Now(), 6);
}

// What one device does, the others' threads are told of by the one clock.
TEST(SimDevice, DevicesOfAWorldHaveItsClockAndTheirOwnTurns) {
  World world;
  const auto a = NewSimDevice(Simple(), {world, "a"}), b = NewSimDevice(Simple(), {world, "b"});
  const Kernel second = {.name = "second", .cost = {.fp8_flops = 200, .kernels = 0}, .run = {}};
  const auto on_a = a->NewStream("a").value(), on_b = b->NewStream("b").value();
  ASSERT_TRUE(on_a->Launch(second).ok());
  ASSERT_TRUE(on_b->Launch(second).ok());
  ASSERT_TRUE(on_b->Synchronize().ok());
  EXPECT_DOUBLE_EQ(b->Now(), 1);
  EXPECT_DOUBLE_EQ(a->Now(), 1);
  EXPECT_DOUBLE_EQ(world.BusySeconds(world.Turns("a processors")), 1);
}

TEST(SimDevice, MemoryIsBounded) {
  const auto device = NewSimDevice(Simple());
  const auto memory = device->Allocate(900, "a");
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(device->Allocate(101, "b").status()));
}

}  // namespace
}  // namespace moestro::device
