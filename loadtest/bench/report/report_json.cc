#include <nlohmann/json.hpp>

#include "common/report/build_info.h"
#include "loadtest/bench/model_run.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {
namespace {

using nlohmann::json;

json ToJson(const Summary& summary) { return {{"median", summary.median}, {"min", summary.min}, {"max", summary.max}}; }

json ToJson(const Row& row) {
  json out = {{"name", row.name},
              {"threads", row.threads},
              {"unit", row.unit},
              {"rate", ToJson(row.rate)},
              {"microseconds", ToJson(row.microseconds)},
              {"counted", row.counted}};
  if (row.reference) {
    out["reference"] = {{"name", row.reference->name}, {"rate", ToJson(row.reference->rate)}};
    out["ratio"] = ToJson(row.ratio);
  }
  if (row.target) {
    out["target"] = *row.target;
    out["verdict"] = Verdict(row);
  }
  if (row.error_p95) out["error_p95"] = *row.error_p95;
  return out;
}

json ToJson(const BenchSection& section) {
  json rows = json::array();
  for (const Row& row : section.findings.rows) rows.push_back(ToJson(row));
  json skipped = json::array();
  for (const Skipped& item : section.findings.skipped) {
    skipped.push_back({{"name", item.name}, {"reason", item.reason}});
  }
  return {{"id", section.id},
          {"title", section.title},
          {"about", section.about},
          {"rows", std::move(rows)},
          {"skipped", std::move(skipped)}};
}

json ToJson(const Machine& m) {
  return {{"cpu_model", m.cpu_model},
          {"cpu_family", m.cpu_family},
          {"cpu_number", m.cpu_number},
          {"cpu_flags", m.cpu_flags},
          {"cores", m.cores},
          {"l2_bytes", m.l2_bytes},
          {"l3_bytes", m.l3_bytes},
          {"memory_bytes", m.memory_bytes},
          {"huge_pages_anonymous", m.huge_pages_anonymous},
          {"huge_pages_shared", m.huge_pages_shared},
          {"buffer_bytes", m.pages.anonymous_bytes},
          {"buffer_huge_bytes", m.pages.huge_bytes},
          {"kernels_isa", m.kernels_isa},
          {"probes_isa", m.probes_isa},
          {"dot_instruction", m.dot_instruction},
          {"read_prefetch_l1_bytes", m.read_ahead.l1},
          {"read_prefetch_l2_bytes", m.read_ahead.l2},
          {"compiler", m.compiler},
          {"build", m.build},
          {"version", m.version},
          {"revision", m.revision},
          {"dirty", IsDirty(m.revision)}};
}

}  // namespace

json ReportJson(const BenchReport& report) {
  json sections = json::array();
  for (const BenchSection& section : report.sections) sections.push_back(ToJson(section));
  return {{"schema", kReportSchema},
          {"date", report.date},
          {"machine", ToJson(report.machine)},
          {"settings",
           {{"preset", report.settings.preset},
            {"threads", report.settings.threads},
            {"rounds", report.settings.rounds},
            {"min_sample_seconds", report.settings.min_sample_seconds},
            {"filter", report.settings.filter}}},
          {"sections", std::move(sections)},
          {"passed", report.passed()},
          {"missed", report.missed()}};
}

nlohmann::json ModelRunJson(const ModelRun& run) {
  json repetitions = json::array();
  for (const ModelRepetition& r : run.repetitions) {
    repetitions.push_back({{"read_bytes_per_second", r.read_bytes_per_second},
                           {"prompt_seconds", r.prompt_seconds},
                           {"decode_seconds", r.decode_seconds},
                           {"experts_prompt_seconds", r.experts_prompt_seconds},
                           {"experts_decode_seconds", r.experts_decode_seconds}});
  }
  return {{"schema", kModelRunSchema},
          {"date", run.date},
          {"machine", ToJson(run.machine)},
          {"settings",
           {{"threads", run.options.threads},
            {"repetitions", run.options.repetitions},
            {"int8_activations", kInt8ActivationsWords[static_cast<size_t>(run.options.int8_activations)]},
            {"prompt_tokens", run.options.prompt_tokens},
            {"decode_tokens", run.options.decode_tokens}}},
          {"model",
           {{"family", run.family},
            {"layers", run.layers},
            {"segment_bytes", run.segment_bytes},
            {"segment_huge_bytes", run.segment_huge_bytes}}},
          {"prompt_operations", run.prompt_operations},
          {"decode_token_bytes", run.decode_token_bytes},
          {"experts_token_bytes", run.experts_token_bytes},
          {"repetitions", std::move(repetitions)}};
}

}  // namespace moestro::bench
