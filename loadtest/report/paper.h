// Computes the paper's Fig. 18 from the records of PaperWorkload. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loadtest/records/record.h"
#include "loadtest/report/report.h"
#include "loadtest/workloads/paper.h"

namespace moestro::loadtest {

struct MeasuredFigure {  // over the rounds
  double median = 0;
  double min = 0;
  double max = 0;
  double ratio = 0;  // median of the ratios to the baseline of the same round and server; 0: no baseline
};

// One load on one server. Rounds with a failed request do not count.
struct PaperResult {
  int server = 0;
  int load = 0;  // index of kPaperLoads
  int rounds = 0;
  std::optional<MeasuredFigure> ttft;         // of the prefill request; ratio to 1P
  std::optional<MeasuredFigure> tpot;         // mean of the decode requests; ratio to 1D
  std::optional<MeasuredFigure> decode_ttft;  // mean of the decode requests; ratio to 1D
  std::optional<MeasuredFigure> total;        // until the load's last request has ended; ratio to 1P
};

// By server, then in the order of kPaperLoads.
std::vector<PaperResult> ComputePaperResults(const std::vector<PaperCell>& cells, std::span<const Record> records);

// Adds the section with the figure's three plots, findings with the degradation, and data["paper"].
// `servers`: names, in the order of Record::server.
void AddPaperSection(const std::vector<PaperResult>& results, const std::vector<std::string>& servers, Report& report);

}  // namespace moestro::loadtest
