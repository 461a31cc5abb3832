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

// "o": experts that compute the rank's own rows, "e": the others', "a": all; "d" and "c": dispatch and combine, "s":
// the shared expert, "r": the router.
std::string RankSteps(int64_t experts, int64_t slots, int64_t max_experts_together) {
  const std::vector<engine::Module> modules = Modules(experts);
  const Schedule schedule = *MakeSchedule(
      modules,
      {.ring_slots = slots, .dense_bytes = 1000, .max_experts_together = max_experts_together, .exchanges = true});
  CheckMemory(schedule);
  std::string steps;
  for (const Step& step : schedule.steps) {
    if (step.layer != 3) continue;
    if (step.kind == engine::StepKind::kRoute) steps += 'r';
    if (step.kind == engine::StepKind::kDispatch) steps += 'd';
    if (step.kind == engine::StepKind::kExperts) steps += "aoe"[static_cast<int>(step.rows)];
    if (step.kind == engine::StepKind::kSharedExpert) steps += 's';
    if (step.kind == engine::StepKind::kCombine) steps += 'c';
    EXPECT_EQ(step.ends_layer, step.kind == engine::StepKind::kCombine);
  }
  return steps;
}

// A rank's own rows go first while the others' come, and last while what became of the others' goes back.
TEST(Schedule, RanksComputeBesideTheirExchanges) {
  EXPECT_EQ(RankSteps(0, 2, 16), "rdsc");
  EXPECT_EQ(RankSteps(1, 2, 16), "rodesc");
  EXPECT_EQ(RankSteps(2, 2, 16), "rodeeosc");
  EXPECT_EQ(RankSteps(5, 2, 16), "rodeaaaeosc");
  EXPECT_EQ(RankSteps(5, 4, 16), "roodeeaeeoosc") << "half of a ring of four";
  EXPECT_EQ(RankSteps(8, 8, 16), "roodeeeeoosc") << "two experts a launch";
  EXPECT_EQ(RankSteps(12, 12, 1), "roooodeeeeaaaaeeeeoooosc") << "not more than hide an exchange";
}

// Whatever the ring, each step computes the experts that lie there, each once for each row.
TEST(Schedule, RanksExpertsSeeEachRowOnce) {
  for (const int64_t experts : {1, 2, 3, 7, 9, 16}) {
    const std::vector<engine::Module> modules = Modules(experts);
    for (const int64_t slots : {2, 3, 4, 8, 9, 16}) {
      const Schedule schedule = *MakeSchedule(modules, {.ring_slots = slots, .dense_bytes = 700, .exchanges = true});
      CheckMemory(schedule);
      std::vector<int64_t> own(schedule.stagings.size()), others(own);
      for (size_t s = 0; s < schedule.steps.size(); ++s) {
        const Step& step = schedule.steps[s];
        if (step.kind != engine::StepKind::kExperts) continue;
        for (int64_t i = step.uses.begin; i < step.uses.end; ++i) {
          EXPECT_GE(schedule.stagings[i].released_by, static_cast<int64_t>(s));
          own[i] += step.rows != engine::WhoseRows::kOthers;
          others[i] += step.rows != engine::WhoseRows::kOwn;
        }
      }
      for (size_t i = 0; i < own.size(); ++i) {
        const int64_t expected = schedule.stagings[i].module->kind == engine::ModuleKind::kExpert ? 1 : 0;
        EXPECT_EQ(own[i], expected);
        EXPECT_EQ(others[i], expected);
      }
    }
  }
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
