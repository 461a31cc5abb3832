#include "common/device/launch_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/device/host/host_device.h"

namespace moestro::device {
namespace {

TEST(LaunchCheckTest, SaysWhetherTheDeviceAdds) {
  const auto device = NewHostDevice({});
  const auto check = [&](absl::FunctionRef<absl::Status(const float*, float*)> add) {
    return CheckLaunch(*device, [&](const float* x, float* sum, void*) { return add(x, sum); });
  };
  const absl::Status adds = check([](const float* x, float* sum) {
    *sum += *x;
    return absl::OkStatus();
  });
  EXPECT_TRUE(adds.ok()) << adds;
  EXPECT_THAT(check([](const float*, float*) { return absl::OkStatus(); }).message(),
              testing::HasSubstr("does not add 1 and 1"));
  EXPECT_THAT(check([](const float*, float*) { return absl::FailedPreconditionError("no image"); }).message(),
              testing::HasSubstr("no image"));
  EXPECT_EQ(device->memory_used(), 0);
}

}  // namespace
}  // namespace moestro::device
