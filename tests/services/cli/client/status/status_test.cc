#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "services/cli/client/status/node_view.h"
#include "services/cli/client/status/render.h"
#include "services/cli/client/status/sources.h"

namespace moestro::cli::status {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SourcesTest, NodeFileNamesAnAddressForEachRole) {
  EXPECT_THAT(AddressesOfNode("bin=/x\nmetrics_router=127.0.0.1:9400\nmetrics_decode=[::1]:7\nmetrics_prefill=x\n"),
              ElementsAre(Pair("decode", "[::1]:7"), Pair("router", "127.0.0.1:9400")));
  EXPECT_THAT(AddressesOfNode(""), IsEmpty());
}

TEST(SourcesTest, FlagsNameAllOrOne) {
  const auto addresses = AddressesOfFlags({"h:10", "decode=other:7"});
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_THAT(*addresses, ElementsAre(Pair("decode", "other:7"), Pair("prefill", "h:12"), Pair("router", "h:10"),
                                      Pair("weight_store", "h:11")));
  EXPECT_THAT(*AddressesOfFlags({}), IsEmpty());
}

TEST(SourcesTest, WrongFlagsAreNamed) {
  for (const char* wrong : {"host", "h:x", "h:65533", "boss=h:1", "decode=h"}) {
    const auto addresses = AddressesOfFlags({wrong});
    EXPECT_EQ(addresses.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(addresses.status().message()), HasSubstr("--metrics")) << wrong;
  }
}

// Ten tokens more after two seconds, one first token within the interval.
Look LookAfter(bool later) {
  Look look{
      .at = later ? 12.0 : 10.0, .roles = {}, .model = NodeModel{"tiny", "deepseek_v3", "f00d", int64_t{3} << 20}};
  const auto counts = [](double fast, double all) {
    return HistogramCounts{.at_most = {{0.1, fast}, {0.2, all}, {kInfinity, all}}};
  };
  RoleLook router{.up = true, .serving = true, .metrics = ScrapedMetrics{}};
  router.metrics->values = {{"moestro_requests_running", 2},
                            {"moestro_requests_waiting", 1},
                            {"moestro_generation_tokens_total", later ? 40 : 30}};
  router.metrics->histograms = {{"moestro_time_to_first_token_seconds", counts(3, later ? 4 : 3)},
                                {"moestro_inter_token_latency_seconds", counts(later ? 30 : 20, later ? 30 : 20)}};
  RoleLook decode{.up = true, .serving = true, .metrics = ScrapedMetrics{}};
  decode.metrics->values = {{"moestro_kv_pages", 100},
                            {"moestro_kv_pages_free", 90},
                            {"moestro_kv_pages_cached", 30},
                            {"moestro_decode_batch_size", 2},
                            {"moestro_process_private_bytes", 1 << 20}};
  RoleLook store{.up = true, .serving = true, .metrics = ScrapedMetrics{}};
  store.metrics->values = {{"moestro_weights_load_progress_ratio", 0.999}, {"moestro_weights_ready", 1}};
  look.roles = {{"router", router},
                {"decode", decode},
                {"weight_store", store},
                {"prefill", {.up = true, .serving = false, .metrics = {}}}};
  return look;
}

TEST(NodeViewTest, TwoLooksTellWhatHappened) {
  const Look before = LookAfter(false);
  const NodeView view = Compare(LookAfter(true), &before);
  EXPECT_TRUE(view.serving());
  EXPECT_DOUBLE_EQ(view.interval_seconds, 2);
  EXPECT_DOUBLE_EQ(view.tokens_per_second.value(), 5);
  EXPECT_EQ(view.first_token->interval.count, 1);
  EXPECT_DOUBLE_EQ(view.first_token->interval.p50.value(), 0.15);
  EXPECT_EQ(view.first_token->total.count, 4);
  EXPECT_EQ(view.inter_token->interval.count, 10);
  EXPECT_DOUBLE_EQ(view.inter_token->interval.p90.value(), 0.09);
  EXPECT_EQ(view.pages->leased, 10);
  EXPECT_EQ(view.pages->cached, 30);
  EXPECT_EQ(view.pages->free, 60);
  EXPECT_DOUBLE_EQ(view.load_progress.value(), 1);
  EXPECT_FALSE(view.roles.at("prefill").has_metrics);
  EXPECT_DOUBLE_EQ(view.roles.at("decode").private_bytes.value(), 1 << 20);
}

TEST(NodeViewTest, OneLookHasNoRate) {
  const NodeView view = Compare(LookAfter(true), nullptr);
  EXPECT_FALSE(view.tokens_per_second.has_value());
  EXPECT_EQ(view.first_token->interval.count, 0);
  EXPECT_EQ(view.first_token->total.count, 4);
}

TEST(NodeViewTest, ARestartedRouterCountsFromZero) {
  const Look before = LookAfter(true);
  Look now = LookAfter(false);
  now.at = 14;
  const NodeView view = Compare(now, &before);
  EXPECT_DOUBLE_EQ(view.tokens_per_second.value(), 15);
  EXPECT_EQ(view.inter_token->interval.count, 20);
}

TEST(RenderTest, Text) {
  const Look before = LookAfter(false);
  EXPECT_EQ(StatusText(Compare(LookAfter(true), &before)),
            "role          state              memory  metrics\n"
            "router        serving                 -  yes\n"
            "weight_store  serving                 -  yes\n"
            "prefill       not serving             -  none\n"
            "decode        serving          1.00 MiB  yes\n"
            "\n"
            "model         tiny (deepseek_v3), 3.00 MiB, fingerprint f00d\n"
            "requests      2 running, 1 waiting; batch of 2\n"
            "KV pages      10 leased, 30 cached, 60 free, of 100\n"
            "tokens/s      5.0 in the last 2.0 s\n"
            "\n"
            "latency                              p50         p90    count\n"
            "TTFT          last 2.0 s        150.0 ms    190.0 ms        1\n"
            "              since start        66.7 ms    160.0 ms        4\n"
            "TPOT          last 2.0 s         50.0 ms     90.0 ms       10\n"
            "              since start        50.0 ms     90.0 ms       30\n");
}

TEST(RenderTest, ANodeThatIsLoading) {
  Look look;
  look.roles["weight_store"] = {.up = true, .serving = false, .metrics = ScrapedMetrics{}};
  look.roles["weight_store"].metrics->values = {{"moestro_weights_load_progress_ratio", 0.25},
                                                {"moestro_weights_ready", 0}};
  const NodeView view = Compare(look, nullptr);
  EXPECT_FALSE(view.serving());
  const std::string text = StatusText(view);
  EXPECT_THAT(text, HasSubstr("router        down                    -  none\n"));
  EXPECT_THAT(text, HasSubstr("loading       25.0 %\n"));
  EXPECT_THAT(text, HasSubstr("requests      - running, - waiting; batch of -\nKV pages      -\ntokens/s      -\n"));
  EXPECT_THAT(text, HasSubstr("TTFT          -\nTPOT          -\n"));
  EXPECT_THAT(StatusText(Compare(LookAfter(true), nullptr)), Not(HasSubstr("loading")));
}

TEST(RenderTest, DevicesWhereThereAreSome) {
  Look look = LookAfter(false);
  look.roles["prefill"].metrics = ScrapedMetrics{};
  auto& prefill = look.roles["prefill"].metrics->values;
  prefill = {{"moestro_prefill_devices_named", 2},
             {"moestro_prefill_devices_open", 0},
             {"moestro_prefill_ring_slots", 0},
             {"moestro_prefill_registered_weight_bytes", 0},
             {"moestro_prefill_devices", 0}};
  look.roles["decode"].metrics->values["moestro_decode_device"] = 0;
  EXPECT_THAT(StatusText(Compare(look, nullptr)), HasSubstr("f00d\nprefill       0 of 2 devices open\nrequests"));
  prefill["moestro_prefill_devices_open"] = 1;
  prefill["moestro_prefill_ring_slots"] = 128;
  prefill["moestro_prefill_registered_weight_bytes"] = 3 << 18;
  prefill["moestro_prefill_devices"] = 1;
  look.roles["decode"].metrics->values["moestro_decode_device"] = 1;
  const NodeView view = Compare(look, nullptr);
  EXPECT_THAT(StatusText(view),
              HasSubstr("\nprefill       1 of 2 devices open, 128 experts of a layer in each, 25 % of the weights "
                        "registered; 1 for the last streamed prompt\n"
                        "decode        attention, dense and shared experts on its device\nrequests"));
  const auto json = StatusJson(view);
  EXPECT_EQ(json["prefill_devices"]["registered_weights_ratio"], 0.25);
  EXPECT_EQ(json["prefill_devices"]["shares"], nlohmann::json::object());
  EXPECT_EQ(json["decode_device"], true);
  prefill["moestro_prefill_devices_named"] = 0;
  EXPECT_TRUE(StatusJson(Compare(look, nullptr))["prefill_devices"].is_null());
}

TEST(RenderTest, DevicesThatShareAPrompt) {
  Look look = LookAfter(false);
  look.roles["prefill"].metrics = ScrapedMetrics{};
  ScrapedMetrics& prefill = *look.roles["prefill"].metrics;
  prefill.values = {{"moestro_prefill_devices_named", 3}, {"moestro_prefill_devices_open", 2}};
  prefill.by_device["moestro_prefill_device_share"] = {{"cuda:0", 3}, {"cuda:1", 2}, {"cuda:2", 0}};
  const auto text = [&] { return StatusText(Compare(look, nullptr)); };
  EXPECT_THAT(text(), HasSubstr(", shares cuda:0 3/5, cuda:1 2/5, exchanges through the host\n"));
  prefill.values["moestro_prefill_peer_exchange"] = 1;
  EXPECT_THAT(text(), HasSubstr(", shares cuda:0 3/5, cuda:1 2/5, exchanges from device to device\n"));
  const auto json = StatusJson(Compare(look, nullptr))["prefill_devices"];
  EXPECT_EQ(json["peer_exchange"], true);
  EXPECT_EQ(json["shares"].dump(), R"({"cuda:0":3,"cuda:1":2})");

  prefill.by_device["moestro_prefill_device_share"] = {{"cuda:0", 1}, {"cuda:1", 1}};
  EXPECT_THAT(text(), HasSubstr("0 % of the weights registered, exchanges from device to device\n")) << "equal parts";
  prefill.values["moestro_prefill_devices_open"] = 1;
  EXPECT_THAT(text(), Not(HasSubstr("exchanges"))) << "with itself";
}

TEST(RenderTest, Json) {
  const Look before = LookAfter(false);
  const auto json = StatusJson(Compare(LookAfter(true), &before));
  EXPECT_EQ(json["serving"], true);
  EXPECT_EQ(json["roles"]["prefill"].dump(), R"({"up":true,"serving":false,"metrics":false,"private_bytes":null})");
  EXPECT_EQ(json["model"]["fingerprint"], "f00d");
  EXPECT_EQ(json["kv_pages"]["free"], 60);
  EXPECT_EQ(json["tokens_per_second"], 5);
  EXPECT_EQ(json["time_to_first_token"]["interval"]["count"], 1);
  const auto nothing = StatusJson(Compare({}, nullptr));
  EXPECT_EQ(nothing["roles"]["router"]["up"], false);
  for (const char* unknown : {"model", "kv_pages", "tokens_per_second", "time_to_first_token", "batch_size"}) {
    EXPECT_TRUE(nothing[unknown].is_null()) << unknown;
  }
}

}  // namespace
}  // namespace moestro::cli::status
