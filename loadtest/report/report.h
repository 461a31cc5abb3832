// The results of a run, and their three renderings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/report/table.h"

namespace moestro::loadtest {

struct Section {
  std::string title;
  std::string about;  // explains the figures
  std::vector<Table> tables;
  std::vector<std::string> plots;  // SVG figures, for the HTML page only
};

struct Report {
  std::string workload;
  bool interrupted = false;
  std::vector<std::string> findings = {};                       // one sentence each: the first thing to read
  std::vector<std::pair<std::string, std::string>> facts = {};  // model, settings: what, value
  std::vector<Section> sections = {};
  nlohmann::json data = nlohmann::json::object();  // the figures behind the sections
  std::string revision = {};                       // of the program's sources, from BuildInfo
  std::string date = {};                           // "2026-11-22", in UTC
};

inline constexpr char kReportSchema[] = "moestro-loadtest-1";

nlohmann::json ReportJson(const Report& report);
std::string ReportMarkdown(const Report& report);
std::string ReportHtml(const Report& report);

}  // namespace moestro::loadtest
