#include "services/prefill/device_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/device/host/host_device.h"
#include "tests/support/faulty_device.h"

namespace moestro::prefill {
namespace {

using testing::HasSubstr;

class DeviceExchangeTest : public testing::Test {
 protected:
  absl::StatusOr<ExchangeChoice> Choose(DeviceExchange setting, size_t count = 2) {
    device::Device* const all[] = {first_.get(), &second_};
    return ChooseExchange(setting, std::span(all).first(count));
  }
  void SetApart() {
    second_.set_fault([this](const std::string& operation) {
      asked_ = true;
      return operation == "reach peer" ? absl::UnavailableError("there is a bridge") : absl::OkStatus();
    });
  }

  std::unique_ptr<device::Device> first_ = device::NewHostDevice({}), host_ = device::NewHostDevice({});
  device::FaultyDevice second_{*host_};
  bool asked_ = false;
};

TEST_F(DeviceExchangeTest, FromDeviceToDeviceWhereTheyCan) {
  EXPECT_EQ(*Choose(DeviceExchange::kAuto), (ExchangeChoice{.peers = true, .reason = ""}));
  EXPECT_EQ(*Choose(DeviceExchange::kPeer), (ExchangeChoice{.peers = true, .reason = ""}));
}

TEST_F(DeviceExchangeTest, AutoTakesTheHostWhereTheyCannotAndSaysWhy) {
  SetApart();
  EXPECT_EQ(*Choose(DeviceExchange::kAuto), (ExchangeChoice{.peers = false, .reason = "there is a bridge"}));
}

TEST_F(DeviceExchangeTest, WhatIsDemandedAndImpossibleIsAnError) {
  SetApart();
  const absl::Status status = Choose(DeviceExchange::kPeer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "--device-exchange peer: there is a bridge; use auto or host");
}

TEST_F(DeviceExchangeTest, NobodyIsAskedForTheHostOrOneDevice) {
  SetApart();
  EXPECT_EQ(*Choose(DeviceExchange::kHost), ExchangeChoice());
  EXPECT_EQ(*Choose(DeviceExchange::kPeer, 1), ExchangeChoice());
  EXPECT_EQ(*Choose(DeviceExchange::kAuto, 0), ExchangeChoice());
  EXPECT_FALSE(asked_);
}

}  // namespace
}  // namespace moestro::prefill
