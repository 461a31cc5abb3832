#include "services/prefill/stream/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace moestro::prefill {
namespace {

// Two dense layers and three with `experts` experts each, modules of odd sizes.
std::vector<engine::Module> Modules(int64_t experts) {
  std::vector<engine::Module> modules;
  for (int64_t layer = 0; layer < 5; ++layer) {
    modules.push_back({.kind = engine::ModuleKind::kAttention, .layer = layer, .image = {{}, 300 + 7 * layer}});
    const bool is_moe = layer >= 2;
    modules.push_back({.kind = is_moe ? engine::ModuleKind::kRouter : engine::ModuleKind::kDense,
                       .layer = layer,
                       .image = {{}, is_moe ? 120 : 500}});
    for (int64_t e = 0; is_moe && e < experts; ++e) {
      modules.push_back({.kind = engine::ModuleKind::kExpert, .layer = layer, .index = e, .image = {{}, 100}});
    }
  }
  for (int64_t i = 0; i < 3; ++i)
    modules.push_back({.kind = engine::ModuleKind::kHead, .layer = 5, .index = i, .image = {{}, 200}});
  return modules;
}

// Releases lag behind loads as far as the schedule allows: no two modules may then share memory.
void CheckMemory(const Schedule& schedule) {
  for (size_t i = 0; i < schedule.stagings.size(); ++i) {
    const Staging& staging = schedule.stagings[i];
    const bool expert = staging.module->kind == engine::ModuleKind::kExpert;
    ASSERT_LE(staging.offset + staging.module->image.bytes,
              expert ? schedule.ring_slots * schedule.slot_bytes : schedule.dense_bytes);
    for (size_t j = 0; j < i; ++j) {
      const Staging& earlier = schedule.stagings[j];
      if ((earlier.module->kind == engine::ModuleKind::kExpert) != expert) continue;
      // All that was waited for up to i.
      int64_t released = -1;
      for (size_t k = 0; k <= i; ++k) released = std::max(released, schedule.stagings[k].after_step);
      if (earlier.released_by <= released) continue;
      ASSERT_TRUE(earlier.offset + earlier.module->image.bytes <= staging.offset ||
                  staging.offset + staging.module->image.bytes <= earlier.offset)
          << i << " overwrites " << j;
    }
  }
}

TEST(Schedule, NoModuleIsOverwrittenBeforeItIsReleased) {
  const std::vector<engine::Module> modules = Modules(9);
  for (const int64_t slots : {2, 3, 8, 9}) {
    for (const int64_t dense : {500, 501, 700, 900, 1300, 5000}) {
      for (const int64_t passes : {1, 2}) {
        SCOPED_TRACE(testing::Message() << slots << " slots, " << dense << " bytes, " << passes << " passes");
        const auto schedule = MakeSchedule(modules, {.passes = passes, .ring_slots = slots, .dense_bytes = dense});
        ASSERT_TRUE(schedule.ok());
        CheckMemory(*schedule);
      }
    }
  }
}

TEST(Schedule, StepsOfALayerInOrder) {
  const std::vector<engine::Module> modules = Modules(5);
  const Schedule schedule = *MakeSchedule(modules, {.passes = 2, .ring_slots = 8, .dense_bytes = 1000});
  std::vector<std::string> names;
  for (const Step& step : schedule.steps) {
    if (step.pass == 0 && (step.layer == 0 || step.layer == 2)) names.push_back(engine::StepName(step.kind));
  }
  EXPECT_THAT(names, testing::ElementsAre("embed", "attention", "dense", "attention", "route", "experts", "experts",
                                          "experts", "shared expert"));
  EXPECT_TRUE(schedule.steps.back().ends_pass);
  EXPECT_EQ(schedule.steps.back().kind, engine::StepKind::kHead);
  EXPECT_EQ(std::ranges::count(schedule.steps, engine::StepKind::kHead, &Step::kind), 3) << "in the last pass only";
}

TEST(Schedule, FullRingLetsTheLoaderRunALayerAhead) {
  const std::vector<engine::Module> modules = Modules(9);
  const Schedule schedule = *MakeSchedule(modules, {.passes = 1, .ring_slots = 9, .dense_bytes = 5000});
  for (const Staging& staging : schedule.stagings) {
    if (staging.after_step < 0) continue;
    EXPECT_EQ(schedule.steps[staging.after_step].layer, staging.module->layer - 1);
  }
}

TEST(Schedule, ExpertsTogetherLeaveRoomToLoad) {
  EXPECT_EQ(ExpertsTogether(2), 1);
  EXPECT_EQ(ExpertsTogether(8), 2);
  EXPECT_EQ(ExpertsTogether(256), 16);
}

TEST(Schedule, TooLittleMemoryNamesTheModule) {
  const std::vector<engine::Module> modules = Modules(2);
  const auto schedule = MakeSchedule(modules, {.passes = 1, .ring_slots = 2, .dense_bytes = 499});
  EXPECT_TRUE(absl::IsResourceExhausted(schedule.status()));
  EXPECT_THAT(schedule.status().message(), testing::HasSubstr("dense of layer 0 takes 500 bytes"));
}

// A layer's KV stays on the device until it has been stored, and a pass finds what the one before stored.
TEST(Schedule, AttentionWaitsForTheKvThatItOverwritesOrReads) {
  for (const int64_t layers : {1, 2, 5}) {
    std::vector<engine::Module> modules = Modules(4);
    std::erase_if(modules, [&](const engine::Module& m) { return m.layer >= layers && m.layer < 5; });
    const auto schedule = MakeSchedule(modules, {.passes = 3, .ring_slots = 2, .dense_bytes = 5000});
    ASSERT_TRUE(schedule.ok());
    std::vector<int64_t> attention;
    for (int64_t s = 0; s < std::ssize(schedule->steps); ++s) {
      const Step& step = schedule->steps[s];
      if (step.kind != engine::StepKind::kAttention) {
        EXPECT_EQ(step.after_step, -1);
        continue;
      }
      const int64_t n = std::ssize(attention);
      EXPECT_EQ(step.after_step,
                n < engine::kKvBuffers && n < layers ? -1 : attention[n - std::min(engine::kKvBuffers, layers)]);
      if (step.pass > 0) {
        EXPECT_GE(step.after_step, attention[n - layers]) << "of the layer in the pass before";
      }
      attention.push_back(s);
    }
    EXPECT_EQ(std::ssize(attention), 3 * layers);
  }
}

}  // namespace
}  // namespace moestro::prefill
