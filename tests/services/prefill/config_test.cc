#include "services/prefill/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::prefill {
namespace {

using device::DeviceName;

PrefillConfig Valid() {
  PrefillConfig config;
  config.node.run_dir = testing::TempDir() + "prefill_config-" + std::to_string(getpid());
  return config;
}

TEST(PrefillConfigTest, DefaultsAreValid) { EXPECT_TRUE(ValidatePrefillConfig(Valid()).ok()); }

TEST(PrefillConfigTest, ErrorsNameTheFlag) {
  PrefillConfig config = Valid();
  config.chunk_tokens = 4097;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--chunk-tokens 4097"));
  config = Valid();
  config.stream.device = "abacus";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--device abacus"));
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:0 "}) {
    config.stream.device = device;
    EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("use none, host or cuda:N")) << device;
  }
  config.stream.device = "cuda";
  EXPECT_EQ(*config.stream.DeviceNames(), std::vector<DeviceName>{{0}});
  config.stream.device = "cuda:1";
  EXPECT_EQ(*config.stream.DeviceNames(), std::vector<DeviceName>{{1}});
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.mla_form.choice = MlaFormChoice::kAbsorbed;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--mla-form absorbed"));
  config = Valid();
  config.stream.device_timeout_seconds = 0;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--device-timeout-seconds 0"));
  config = Valid();
  config.stream.ring_slots = 1;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--ring-slots 1"));
  config = Valid();
  config.node.instance = "a/b";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--instance"));
}

TEST(PrefillConfigTest, AListOfDevices) {
  const DeviceName host;
  StreamConfig stream;
  EXPECT_THAT(*stream.DeviceNames(), testing::IsEmpty());
  const std::pair<const char*, std::vector<DeviceName>> lists[] = {
      {"none", {}},      {"host", {host}}, {"host,host", {host, host}}, {"0", {{0}}},
      {"cuda:3", {{3}}}, {"cuda", {{0}}},  {"1,0", {{1}, {0}}},         {"cuda:0,cuda:1", {{0}, {1}}}};
  for (const auto& [list, names] : lists) {
    stream.devices = list;
    EXPECT_EQ(*stream.DeviceNames(), names) << list;
  }
}

TEST(PrefillConfigTest, AWrongListSaysWhatToUse) {
  PrefillConfig config = Valid();
  const auto error = [&](const std::string& list) {
    config.stream.devices = list;
    return std::string(ValidatePrefillConfig(config).message());
  };
  for (const char* list : {"host,abacus", "host,", ",", "host,,host", "host, host", "-1", "none,host"}) {
    EXPECT_THAT(error(list), testing::HasSubstr("--devices " + std::string(list) + ": '")) << list;
    EXPECT_THAT(error(list), testing::HasSubstr("use host, or the numbers of GPUs (0,1)")) << list;
  }
  for (const char* list : {"host,0", "0,1,host"}) {
    EXPECT_THAT(error(list), testing::HasSubstr("GPUs would wait for the host")) << list;
    EXPECT_THAT(error(list), testing::HasSubstr("(--devices 0,1) or host devices (--devices host,host)")) << list;
  }
  for (const char* list : {"0,0", "cuda,1,0"}) {
    EXPECT_THAT(error(list), testing::HasSubstr("cuda:0 is listed twice; list a GPU once")) << list;
  }
  EXPECT_EQ(error("0,1"), "");
  EXPECT_THAT(error("host,host,host,host,host,host,host,host,host"), testing::HasSubstr("9 devices, use at most 8"));
  config.mla_form.choice = MlaFormChoice::kAbsorbed;
  EXPECT_EQ(error("host"), "");
  EXPECT_THAT(error("host,host"), testing::HasSubstr("but --devices host,host computes others"));
  config.mla_form.choice = MlaFormChoice::kAuto;
  EXPECT_EQ(error("host,host"), "");
  config.stream.device = "host";
  EXPECT_THAT(error("host,host"), testing::HasSubstr("use one of them"));
}

TEST(PrefillConfigTest, AnExchangeNeedsSeveralDevices) {
  PrefillConfig config = Valid();
  config.stream.device_exchange = DeviceExchange::kPeer;
  EXPECT_EQ(ValidatePrefillConfig(config).message(),
            "--device-exchange peer: --device none names 0 devices; use auto, or several that share prompts "
            "(--devices 0,1)");
  config.stream.devices = "0";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--devices 0 names 1 devices; use auto"));
  config.stream.device_exchange = DeviceExchange::kHost;
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.stream.device_exchange = DeviceExchange::kPeer;
  config.stream.borrow_device = "cuda:1";
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
}

TEST(PrefillConfigTest, SharesOfDevices) {
  PrefillConfig config = Valid();
  EXPECT_TRUE(config.stream.measures_shares());
  EXPECT_THAT(*config.stream.DeviceShares(), testing::IsEmpty());
  config.stream.devices = "0,1";
  EXPECT_THAT(*config.stream.DeviceShares(), testing::ElementsAre(1, 1));
  const auto error = [&](const std::string& shares) {
    config.stream.device_shares = shares;
    return std::string(ValidatePrefillConfig(config).message());
  };
  EXPECT_EQ(error("3,2"), "");
  EXPECT_FALSE(config.stream.measures_shares());
  EXPECT_THAT(*config.stream.DeviceShares(), testing::ElementsAre(3, 2));
  EXPECT_EQ(error("1000,1"), "");
  for (const char* shares : {"3,x", "3,", "", "0,1", "-1,1", "1.5,1", "1001,1", "auto,1", "99999999999999999999,1"}) {
    EXPECT_THAT(error(shares), testing::HasSubstr("--device-shares " + std::string(shares) + ": '")) << shares;
    EXPECT_THAT(error(shares), testing::HasSubstr("use a number from 1 to 1000 for each device")) << shares;
  }
  EXPECT_THAT(error("3"), testing::HasSubstr("1 shares, but --devices 0,1 names 2 devices"));
  EXPECT_THAT(error("3,2,1"), testing::HasSubstr("3 shares, but --devices 0,1 names 2 devices; use a share for each"));
  config.stream.borrow_device = "cuda:2";
  EXPECT_EQ(error("3,2,1"), "") << "the last is the borrowed one's";
  EXPECT_THAT(error("3,2"), testing::HasSubstr("2 shares, but --devices 0,1 --borrow-device cuda:2 names 3 devices"));
  config = Valid();
  EXPECT_THAT(error("1,1"), testing::HasSubstr("2 shares, but --device none names 0 devices"));
}

TEST(PrefillConfigTest, ADeviceToBorrow) {
  PrefillConfig config = Valid();
  config.stream.borrow_device = "host";
  EXPECT_THAT(ValidatePrefillConfig(config).message(),
              testing::HasSubstr("--borrow-device needs a device of the role's own: --device host"));
  config.stream.device = "host";
  EXPECT_EQ(config.stream.DeviceNames()->size(), 2u);
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.stream.borrow_device = "abacus";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--borrow-device abacus: use none"));
  config.stream.borrow_device = "cuda:1";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("would wait for the host"));
  config.stream.device = "cuda:0";
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.stream.device = "cuda:1";
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("cuda:1 is listed twice"));
}

TEST(PrefillConfigTest, Fp8InputsHaveOtherBitsThanDecode) {
  PrefillConfig config;
  config.activations = PrefillActivations::kFp8;
  EXPECT_TRUE(ValidatePrefillConfig(config).ok());
  config.mla_form.choice = MlaFormChoice::kAbsorbed;
  EXPECT_THAT(ValidatePrefillConfig(config).message(), testing::HasSubstr("--prefill-activations fp8"));
}

TEST(MlaFormPolicyTest, AutoChangesFormAtTheThreshold) {
  MlaFormPolicy policy;
  EXPECT_EQ(policy.ForPrompt(policy.unabsorbed_from_tokens - 1), model::MlaForm::kAbsorbed);
  EXPECT_EQ(policy.ForPrompt(policy.unabsorbed_from_tokens), model::MlaForm::kUnabsorbed);
  policy.choice = MlaFormChoice::kAbsorbed;
  EXPECT_EQ(policy.ForPrompt(1 << 20), model::MlaForm::kAbsorbed);
  policy.choice = MlaFormChoice::kUnabsorbed;
  EXPECT_EQ(policy.ForPrompt(1), model::MlaForm::kUnabsorbed);
}

}  // namespace
}  // namespace moestro::prefill
