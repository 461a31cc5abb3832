#include "loadtest/report/paper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/report/number.h"
#include "common/report/plots.h"
#include "loadtest/report/sections.h"

namespace moestro::loadtest {
namespace {

using Rounds = std::map<int, double>;  // round → value

struct CellFigures {
  Rounds ttft, tpot, decode_ttft, total;
};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void AddCell(const PaperCell& cell, const std::vector<const Record*>& records, CellFigures& figures) {
  const PaperLoad& load = kPaperLoads[cell.load];
  if (static_cast<int>(records.size()) != load.prefills + load.decodes) return;
  std::vector<double> ttft, tpot, decode_ttft;
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const Record* record : records) {
    if (!record->completed() || !record->ttft()) return;
    first = std::min(first, record->sent);
    last = std::max(last, *record->ended);
    if (record->group.starts_with("prefill")) {
      ttft.push_back(*record->ttft());
    } else {
      decode_ttft.push_back(*record->ttft());
      if (record->tpot()) tpot.push_back(*record->tpot());
    }
  }
  if (!ttft.empty()) figures.ttft[cell.round] = Mean(ttft);
  if (!tpot.empty()) figures.tpot[cell.round] = Mean(tpot);
  if (!decode_ttft.empty()) figures.decode_ttft[cell.round] = Mean(decode_ttft);
  figures.total[cell.round] = last - first;
}

std::optional<MeasuredFigure> ToFigure(const Rounds& rounds, const Rounds& baseline) {
  if (rounds.empty()) return std::nullopt;
  std::vector<double> values, ratios;
  for (const auto& [round, value] : rounds) {
    values.push_back(value);
    if (const auto it = baseline.find(round); it != baseline.end()) ratios.push_back(value / it->second);
  }
  return MeasuredFigure{.median = Median(values),
                        .min = std::ranges::min(values),
                        .max = std::ranges::max(values),
                        .ratio = ratios.empty() ? 0 : Median(ratios)};
}

using FigureMember = std::optional<MeasuredFigure> PaperResult::*;

const PaperResult& Find(const std::vector<PaperResult>& results, int server, int load) {
  return results[static_cast<size_t>(server) * kPaperLoadCount + static_cast<size_t>(load)];
}

// One subfigure: normalised bars, absolute values above them.
std::string Bars(const std::string& title, FigureMember member, const std::vector<PaperResult>& results,
                 const std::vector<std::string>& servers) {
  BarPlot plot{.title = title, .groups = {}, .series = {}};
  std::vector<int> loads;
  for (int load = 0; load < kPaperLoadCount; ++load) {
    for (size_t server = 0; server < servers.size(); ++server) {
      if (const auto& figure = Find(results, static_cast<int>(server), load).*member; figure && figure->ratio > 0) {
        loads.push_back(load);
        break;
      }
    }
  }
  for (const int load : loads) plot.groups.emplace_back(kPaperLoads[load].name);
  for (size_t server = 0; server < servers.size(); ++server) {
    BarPlot::Series series{.name = servers[server], .values = {}, .labels = {}};
    for (const int load : loads) {
      const auto& figure = Find(results, static_cast<int>(server), load).*member;
      series.values.push_back(figure && figure->ratio > 0 ? figure->ratio : std::nan(""));
      series.labels.push_back(figure ? Seconds(figure->median) : "");
    }
    plot.series.push_back(std::move(series));
  }
  return ToSvg(plot);
}

void AddRows(const char* what, const char* baseline, FigureMember member, const std::vector<PaperResult>& results,
             const std::vector<std::string>& servers, Table& table) {
  for (int load = 0; load < kPaperLoadCount; ++load) {
    for (size_t server = 0; server < servers.size(); ++server) {
      const PaperResult& result = Find(results, static_cast<int>(server), load);
      const auto& figure = result.*member;
      if (!figure) continue;
      const auto& other = Find(results, 0, load).*member;
      table.rows.push_back({what, kPaperLoads[load].name, servers[server], Seconds(figure->median),
                            Seconds(figure->min), Seconds(figure->max),
                            absl::StrCat(ShortNumber(figure->ratio), " × ", baseline), absl::StrCat(result.rounds),
                            server == 0 || !other ? "" : ShortNumber(figure->median / other->median)});
    }
  }
}

// A server that disturbs its requests less may still be slower.
void AddAbsoluteFinding(const PaperResult& result, const PaperResult& first, const std::vector<std::string>& servers,
                        Report& report) {
  if (result.server == first.server || !first.ttft || !first.tpot) return;
  report.findings.push_back(absl::StrCat(
      servers[static_cast<size_t>(result.server)], " in absolute values, relative to ",
      servers[static_cast<size_t>(first.server)], " in 1P+1D: ", ShortNumber(result.tpot->median / first.tpot->median),
      " for a token, ", ShortNumber(result.ttft->median / first.ttft->median), " until the first token"));
}

nlohmann::json ToJson(const std::optional<MeasuredFigure>& figure) {
  if (!figure) return nullptr;
  return {{"median", figure->median}, {"min", figure->min}, {"max", figure->max}, {"ratio", figure->ratio}};
}

}  // namespace

std::vector<PaperResult> ComputePaperResults(const std::vector<PaperCell>& cells, std::span<const Record> records) {
  std::vector<std::vector<const Record*>> by_cell(cells.size());
  for (const Record& record : records) by_cell[static_cast<size_t>(record.tag)].push_back(&record);
  std::map<std::pair<int, int>, CellFigures> figures;  // server, load
  for (size_t i = 0; i < cells.size(); ++i) AddCell(cells[i], by_cell[i], figures[{cells[i].server, cells[i].load}]);
  int servers = 0;
  for (const PaperCell& cell : cells) servers = std::max(servers, cell.server + 1);
  std::vector<PaperResult> results;
  for (int server = 0; server < servers; ++server) {
    const CellFigures& one_prefill = figures[{server, 0}];
    const CellFigures& one_decode = figures[{server, 1}];
    for (int load = 0; load < kPaperLoadCount; ++load) {
      const CellFigures& own = figures[{server, load}];
      results.push_back({.server = server,
                         .load = load,
                         .rounds = static_cast<int>(own.total.size()),
                         .ttft = ToFigure(own.ttft, one_prefill.ttft),
                         .tpot = ToFigure(own.tpot, one_decode.tpot),
                         .decode_ttft = ToFigure(own.decode_ttft, one_decode.decode_ttft),
                         .total = ToFigure(own.total, one_prefill.total)});
    }
  }
  return results;
}

void AddPaperSection(const std::vector<PaperResult>& results, const std::vector<std::string>& servers, Report& report) {
  Table table{.columns = {"figure", "load", "server", "median", "min", "max", "normalised", "rounds", "× first server"},
              .rows = {},
              .text_columns = 3};
  AddRows("TTFT", "1P", &PaperResult::ttft, results, servers, table);
  AddRows("TPOT", "1D", &PaperResult::tpot, results, servers, table);
  AddRows("TTFT of D", "1D", &PaperResult::decode_ttft, results, servers, table);
  AddRows("total", "1P", &PaperResult::total, results, servers, table);
  report.sections.push_back(
      {.title = "Prefill and decode side by side (the paper's Fig. 18)",
       .about =
           "P: a prefill request with a long prompt, D: a decode request with many tokens; the requests of a load "
           "begin "
           "at the same moment. TTFT is that of the prefill request, TPOT the mean of the decode requests, total the "
           "time until the load's last request has ended. Bars and the column “normalised” are medians of the "
           "ratios to 1P (TTFT, total) or 1D (TPOT) of the same round; the values beside them are medians over the "
           "rounds. 1.00 means that the requests do not disturb each other. TTFT of D is not in the paper. If it "
           "is close to the prefill's own TTFT, decode waited for the prefill, and its TPOT was measured after it, "
           "not beside it.",
       .tables = {std::move(table)},
       .plots = {Bars("TTFT of the prefill request, normalised to 1P", &PaperResult::ttft, results, servers),
                 Bars("TPOT of the decode requests, normalised to 1D", &PaperResult::tpot, results, servers),
                 Bars("Total latency, normalised to 1P", &PaperResult::total, results, servers)}});
  nlohmann::json data = nlohmann::json::array();
  constexpr int kMixed = 2;  // 1P+1D
  for (const PaperResult& result : results) {
    const std::string& server = servers[static_cast<size_t>(result.server)];
    data.push_back({{"server", server},
                    {"load", kPaperLoads[result.load].name},
                    {"rounds", result.rounds},
                    {"ttft_seconds", ToJson(result.ttft)},
                    {"tpot_seconds", ToJson(result.tpot)},
                    {"decode_ttft_seconds", ToJson(result.decode_ttft)},
                    {"total_seconds", ToJson(result.total)}});
    if (result.load == kMixed && result.ttft && result.tpot) {
      report.findings.push_back(absl::StrCat(
          server, ": with a prefill beside it decode takes ", Seconds(result.tpot->median), " for a token, ",
          ShortNumber(result.tpot->ratio),
          " × its time alone (1P+1D / 1D); with a decode beside it the first token takes ",
          Seconds(result.ttft->median), ", ", ShortNumber(result.ttft->ratio), " × its time alone (1P+1D / 1P)"));
      AddAbsoluteFinding(result, Find(results, 0, kMixed), servers, report);
      // Half: a decode that is served at once gets its first token in a small part of a long prefill.
      if (result.decode_ttft && result.decode_ttft->median > 0.5 * result.ttft->median) {
        report.findings.push_back(absl::StrCat(server, ": in 1P+1D decode waited ", Seconds(result.decode_ttft->median),
                                               " for its first token, the prefill took ", Seconds(result.ttft->median),
                                               ": they did not run side by side"));
      }
    }
  }
  report.data["paper"] = std::move(data);
}

}  // namespace moestro::loadtest
