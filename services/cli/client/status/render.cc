#include "services/cli/client/status/render.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/report/number.h"
#include "services/cli/client/status/sources.h"

namespace moestro::cli::status {
namespace {

using nlohmann::ordered_json;

const char* StateName(const RoleView& role) {
  if (!role.up) return "down";
  return role.serving ? "serving" : "not serving";
}

std::string Whole(const std::optional<double>& value) { return value ? absl::StrFormat("%.0f", *value) : "-"; }

std::string Milliseconds(const std::optional<double>& seconds) {
  return seconds ? absl::StrFormat("%.1f ms", 1000 * *seconds) : "-";
}

std::string RoleLines(const NodeView& view) {
  std::string text = absl::StrFormat("%-14s%-13s%12s  %s\n", "role", "state", "memory", "metrics");
  for (const char* name : kRoles) {
    const auto found = view.roles.find(name);
    const RoleView role = found == view.roles.end() ? RoleView{} : found->second;
    absl::StrAppendFormat(&text, "%-14s%-13s%12s  %s\n", name, StateName(role),
                          role.private_bytes ? HumanBytes(static_cast<int64_t>(*role.private_bytes)) : "-",
                          role.has_metrics ? "yes" : "none");
  }
  return text;
}

std::string ModelLine(const NodeView& view) {
  std::string text = "model         ";
  if (view.model) {
    absl::StrAppendFormat(&text, "%s (%s), %s, fingerprint %s", view.model->name, view.model->family,
                          HumanBytes(view.model->segment_bytes), view.model->fingerprint);
  } else {
    absl::StrAppend(&text, "-");
  }
  if (view.load_progress && *view.load_progress < 1) {
    absl::StrAppendFormat(&text, "\nloading       %.1f %%", 100 * *view.load_progress);
  }
  return text + "\n";
}

std::string WorkLines(const NodeView& view) {
  std::string text = absl::StrFormat("requests      %s running, %s waiting; batch of %s\n", Whole(view.running),
                                     Whole(view.waiting), Whole(view.batch_size));
  if (view.pages) {
    absl::StrAppendFormat(&text, "KV pages      %d leased, %d cached, %d free, of %d\n", view.pages->leased,
                          view.pages->cached, view.pages->free, view.pages->total);
  } else {
    absl::StrAppend(&text, "KV pages      -\n");
  }
  absl::StrAppend(&text, "tokens/s      ",
                  view.tokens_per_second
                      ? absl::StrFormat("%.1f in the last %.1f s", *view.tokens_per_second, view.interval_seconds)
                      : "-",
                  "\n");
  return text;
}

// What devices that share prompts tell of it. Equal shares go without saying.
std::string SharingText(const NodeView::Devices& devices) {
  int64_t total = 0;
  for (const auto& [device, share] : devices.shares) total += share;
  std::string text;
  if (total > std::ssize(devices.shares)) {
    const auto share_of = [&](std::string* out, const std::pair<const std::string, int64_t>& device) {
      absl::StrAppendFormat(out, "%s %d/%d", device.first, device.second, total);
    };
    absl::StrAppend(&text, ", shares ", absl::StrJoin(devices.shares, ", ", share_of));
  }
  absl::StrAppend(&text, devices.peers ? ", exchanges from device to device" : ", exchanges through the host");
  return text;
}

std::string DeviceLines(const NodeView& view) {
  std::string text;
  if (view.prefill_devices) {
    const NodeView::Devices& devices = *view.prefill_devices;
    absl::StrAppendFormat(&text, "prefill       %d of %d devices open", devices.open, devices.named);
    if (devices.open > 0) {
      absl::StrAppendFormat(&text, ", %d experts of a layer in each", devices.ring_slots);
      if (devices.registered)
        absl::StrAppendFormat(&text, ", %.0f %% of the weights registered", 100 * *devices.registered);
      if (devices.open > 1) text += SharingText(devices);
    }
    if (devices.of_last_prompt > 0) {
      absl::StrAppendFormat(&text, "; %d for the last streamed prompt", devices.of_last_prompt);
    }
    text += "\n";
  }
  if (view.decode_device == true) text += "decode        attention, dense and shared experts on its device\n";
  return text;
}

std::string LatencyLine(const char* name, const std::string& when, const Latency& latency) {
  return absl::StrFormat("%-14s%-14s%12s%12s%9d\n", name, when, Milliseconds(latency.p50), Milliseconds(latency.p90),
                         latency.count);
}

std::string LatencyLines(const NodeView& view) {
  std::string text = absl::StrFormat("%-14s%-14s%12s%12s%9s\n", "latency", "", "p50", "p90", "count");
  for (const auto& [name, pair] : {std::pair("TTFT", view.first_token), std::pair("TPOT", view.inter_token)}) {
    if (!pair) {
      absl::StrAppendFormat(&text, "%-14s-\n", name);
      continue;
    }
    const bool compared = view.interval_seconds > 0;
    if (compared) text += LatencyLine(name, absl::StrFormat("last %.1f s", view.interval_seconds), pair->interval);
    text += LatencyLine(compared ? "" : name, "since start", pair->total);
  }
  return text;
}

template <typename T>
ordered_json OrNull(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json ToJson(const Latency& latency) {
  return {{"count", latency.count}, {"p50_seconds", OrNull(latency.p50)}, {"p90_seconds", OrNull(latency.p90)}};
}

ordered_json ToJson(const std::optional<LatencyPair>& pair) {
  if (!pair) return nullptr;
  return {{"interval", ToJson(pair->interval)}, {"since_start", ToJson(pair->total)}};
}

}  // namespace

std::string StatusText(const NodeView& view) {
  return absl::StrCat(RoleLines(view), "\n", ModelLine(view), DeviceLines(view), WorkLines(view), "\n",
                      LatencyLines(view));
}

ordered_json StatusJson(const NodeView& view) {
  ordered_json roles;
  for (const char* name : kRoles) {
    const auto found = view.roles.find(name);
    const RoleView role = found == view.roles.end() ? RoleView{} : found->second;
    roles[name] = {{"up", role.up},
                   {"serving", role.serving},
                   {"metrics", role.has_metrics},
                   {"private_bytes", OrNull(role.private_bytes)}};
  }
  ordered_json json = {{"serving", view.serving()}, {"roles", roles}, {"model", nullptr}};
  if (view.model) {
    json["model"] = {{"name", view.model->name},
                     {"family", view.model->family},
                     {"fingerprint", view.model->fingerprint},
                     {"segment_bytes", view.model->segment_bytes}};
  }
  json["load_progress_ratio"] = OrNull(view.load_progress);
  json["requests_running"] = OrNull(view.running);
  json["requests_waiting"] = OrNull(view.waiting);
  json["batch_size"] = OrNull(view.batch_size);
  json["kv_pages"] = nullptr;
  if (view.pages) {
    json["kv_pages"] = {{"total", view.pages->total},
                        {"leased", view.pages->leased},
                        {"cached", view.pages->cached},
                        {"free", view.pages->free}};
  }
  json["prefill_devices"] = nullptr;
  if (view.prefill_devices) {
    json["prefill_devices"] = {{"named", view.prefill_devices->named},
                               {"open", view.prefill_devices->open},
                               {"ring_slots", view.prefill_devices->ring_slots},
                               {"registered_weights_ratio", OrNull(view.prefill_devices->registered)},
                               {"of_last_prompt", view.prefill_devices->of_last_prompt},
                               {"peer_exchange", view.prefill_devices->peers},
                               {"shares", view.prefill_devices->shares}};
  }
  json["decode_device"] = OrNull(view.decode_device);
  json["interval_seconds"] = view.interval_seconds;
  json["tokens_per_second"] = OrNull(view.tokens_per_second);
  json["time_to_first_token"] = ToJson(view.first_token);
  json["inter_token_latency"] = ToJson(view.inter_token);
  return json;
}

}  // namespace moestro::cli::status
