// Runs that MoE-Lightning's authors published: Figs. 7 and 8, Tables 4 and 5, and the logs beside the paper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/cli/paper/moe_lightning/pipeline.h"

namespace moestro::cli {

struct PublishedRun {
  double generate = 0;           // tokens of each request
  double tokens_per_second = 0;  // generated, over prefill and decode
  int64_t requests = 0;          // of the logs: seconds * tokens per second / generate
  // Printed for S1, S2 and the tables. Elsewhere the one of the optimizer's grid of which `requests` is a multiple, or
  // nearly: requests that did not fit were put off.
  int64_t micro_batch = 0;
  bool fits_rates = false;  // the rates of the machine with this model are fitted to it

  int64_t micro_batches() const { return (requests + micro_batch - 1) / micro_batch; }
};

struct PublishedSetting {
  const char* name;
  const char* section;
  const char* machine;  // a file of deploy/hardware, without .json
  const char* model;
  double prompt;  // tokens: of the longest with padding, else on average
  std::vector<PublishedRun> runs;
};

std::span<const PublishedSetting> PublishedSettings();

// Other systems with Mixtral 8x7B, whose batches the paper or its logs print.
struct PublishedBaseline {
  const char* setting;
  const char* section;
  const char* system;
  const char* machine;
  double prompt;  // tokens; all requests are padded
  Schedule schedule;
  PublishedRun run;
};
std::span<const PublishedBaseline> PublishedBaselines();

// Fig. 9: seconds of one layer's parts on an L4 and its host.
inline constexpr double kFig9Contexts[] = {128, 256, 512, 1024, 2048};
struct PublishedLatency {
  double micro_batch = 0;
  double experts = 0;
  // By kFig9Contexts.
  double cache_copy[5] = {};
  double host_attention[5] = {};
};
std::span<const PublishedLatency> PublishedLatencies();

}  // namespace moestro::cli
