#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "loadtest/bench/report/report.h"

namespace moestro::bench {
namespace {

using nlohmann::json;

// Reads members and records the first that is missing or of the wrong type.
class Reader {
 public:
  template <typename T>
  T Get(const json& object, const std::string& where, const char* key) {
    const auto member = object.find(key);
    if (member == object.end()) return Fail<T>(absl::StrCat(where, " has no '", key, "'"));
    return As<T>(*member, absl::StrCat(where, ", '", key, "'"));
  }
  template <typename T>
  T GetOr(const json& object, const std::string& where, const char* key, T missing) {
    return object.contains(key) ? Get<T>(object, where, key) : missing;
  }
  // A member that is an object or an array; empty after an error.
  json Nested(const json& object, const std::string& where, const char* key, json::value_t type) {
    const auto member = object.find(key);
    if (member != object.end() && member->type() == type) return *member;
    Fail<int>(absl::StrCat(where, " has no ", type == json::value_t::array ? "list '" : "object '", key, "'"));
    return json(type);
  }
  Summary GetSummary(const json& object, const std::string& where, const char* key) {
    const json summary = Nested(object, where, key, json::value_t::object);
    const std::string inside = absl::StrCat(where, ", '", key, "'");
    return {.median = Get<double>(summary, inside, "median"),
            .min = Get<double>(summary, inside, "min"),
            .max = Get<double>(summary, inside, "max")};
  }
  template <typename T>
  T Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(what);
    return {};
  }
  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  T As(const json& value, const std::string& where) {
    constexpr bool kText = std::is_same_v<T, std::string>;
    constexpr bool kInteger = std::is_integral_v<T>;
    const bool fits = kText ? value.is_string() : kInteger ? value.is_number_integer() : value.is_number();
    if (!fits) return Fail<T>(absl::StrCat(where, " is not a ", kText ? "text" : kInteger ? "whole number" : "number"));
    return value.get<T>();
  }

  absl::Status status_;
};

Row ParseRow(const json& object, const std::string& section, Reader& reader) {
  Row row;
  row.name = reader.Get<std::string>(object, absl::StrCat("a row of section '", section, "'"), "name");
  const std::string where = absl::StrCat("section '", section, "', row '", row.name, "'");
  row.threads = reader.Get<int>(object, where, "threads");
  row.unit = reader.Get<std::string>(object, where, "unit");
  row.rate = reader.GetSummary(object, where, "rate");
  row.microseconds = reader.GetSummary(object, where, "microseconds");
  row.counted = reader.Get<std::string>(object, where, "counted");
  if (object.contains("reference")) {
    const json reference = reader.Nested(object, where, "reference", json::value_t::object);
    row.reference = Reference{.name = reader.Get<std::string>(reference, where + ", 'reference'", "name"),
                              .rate = reader.GetSummary(reference, where + ", 'reference'", "rate")};
    row.ratio = reader.GetSummary(object, where, "ratio");
  }
  if (object.contains("target")) row.target = reader.Get<double>(object, where, "target");
  if (object.contains("error_p95")) row.error_p95 = reader.Get<double>(object, where, "error_p95");
  return row;
}

BenchSection ParseSection(const json& object, Reader& reader) {
  BenchSection section;
  section.id = reader.Get<std::string>(object, "a section", "id");
  const std::string where = absl::StrCat("section '", section.id, "'");
  section.title = reader.Get<std::string>(object, where, "title");
  section.about = reader.Get<std::string>(object, where, "about");
  for (const json& row : reader.Nested(object, where, "rows", json::value_t::array)) {
    section.findings.rows.push_back(ParseRow(row, section.id, reader));
  }
  for (const json& skipped : reader.Nested(object, where, "skipped", json::value_t::array)) {
    section.findings.skipped.push_back({.name = reader.Get<std::string>(skipped, where + ", 'skipped'", "name"),
                                        .reason = reader.Get<std::string>(skipped, where + ", 'skipped'", "reason")});
  }
  return section;
}

Machine ParseMachine(const json& object, Reader& reader) {
  const auto text = [&](const char* key) { return reader.Get<std::string>(object, "'machine'", key); };
  const auto number = [&](const char* key) { return reader.Get<int64_t>(object, "'machine'", key); };
  Machine m;
  m.cpu_model = text("cpu_model");
  m.cpu_family = reader.GetOr<int>(object, "'machine'", "cpu_family", 0);
  m.cpu_number = reader.GetOr<int>(object, "'machine'", "cpu_number", 0);
  for (const json& flag : reader.Nested(object, "'machine'", "cpu_flags", json::value_t::array)) {
    if (flag.is_string()) m.cpu_flags.push_back(flag.get<std::string>());
  }
  m.cores = static_cast<int>(number("cores"));
  m.l2_bytes = number("l2_bytes");
  m.l3_bytes = number("l3_bytes");
  m.memory_bytes = number("memory_bytes");
  m.huge_pages_anonymous = text("huge_pages_anonymous");
  m.huge_pages_shared = text("huge_pages_shared");
  m.pages = {.huge_bytes = number("buffer_huge_bytes"), .anonymous_bytes = number("buffer_bytes")};
  m.kernels_isa = text("kernels_isa");
  m.probes_isa = text("probes_isa");
  m.dot_instruction = text("dot_instruction");
  m.read_ahead = {.l1 = reader.GetOr<int64_t>(object, "'machine'", "read_prefetch_l1_bytes", 0),
                  .l2 = reader.GetOr<int64_t>(object, "'machine'", "read_prefetch_l2_bytes", 0)};
  m.compiler = text("compiler");
  m.build = text("build");
  m.version = text("version");
  m.revision = text("revision");
  return m;
}

}  // namespace

absl::StatusOr<BenchReport> ParseReport(const std::string& text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("not JSON: cut off, or another kind of file");
  if (!parsed.is_object() || !parsed.contains("schema") || parsed["schema"] != kReportSchema) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a report of `moestro bench`: its 'schema' is not \"", kReportSchema, "\""));
  }
  Reader reader;
  BenchReport report;
  report.date = reader.GetOr<std::string>(parsed, "the report", "date", "");
  report.machine = ParseMachine(reader.Nested(parsed, "the report", "machine", json::value_t::object), reader);
  const json settings = reader.Nested(parsed, "the report", "settings", json::value_t::object);
  report.settings = {.preset = reader.Get<std::string>(settings, "'settings'", "preset"),
                     .threads = reader.Get<int>(settings, "'settings'", "threads"),
                     .rounds = reader.Get<int>(settings, "'settings'", "rounds"),
                     .min_sample_seconds = reader.Get<double>(settings, "'settings'", "min_sample_seconds"),
                     .filter = reader.Get<std::string>(settings, "'settings'", "filter")};
  for (const json& section : reader.Nested(parsed, "the report", "sections", json::value_t::array)) {
    report.sections.push_back(ParseSection(section, reader));
  }
  if (!reader.status().ok()) return reader.status();
  return report;
}

}  // namespace moestro::bench
