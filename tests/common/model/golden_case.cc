#include "tests/common/model/golden_case.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace moestro::model {
namespace {

using Json = nlohmann::json;

GoldenPosition ReadPosition(const Json& json, const std::vector<int32_t>& probe_ids) {
  GoldenPosition position;
  position.ids = json.at("top_ids").get<std::vector<int32_t>>();
  position.logits = json.at("top_logits").get<std::vector<double>>();
  position.ids.insert(position.ids.end(), probe_ids.begin(), probe_ids.end());
  for (const Json& logit : json.at("probe_logits")) position.logits.push_back(logit.get<double>());
  position.norm = json.at("norm").get<double>();
  return position;
}

GoldenCase ReadCase(const Json& json) {
  GoldenCase result;
  result.checkpoint_crc32 = json.at("checkpoint").at("crc32").dump();
  result.token_count = json.at("token_count").get<int64_t>();
  result.prompt = json.at("prompt").get<std::vector<int32_t>>();
  const auto probe_ids = json.at("probe_ids").get<std::vector<int32_t>>();
  const Json& variant = json.at("variants").at("f32");
  for (const Json& position : variant.at("positions")) {
    result.positions.push_back(ReadPosition(position, probe_ids));
    const size_t i = result.positions.size() - 1;
    result.positions.back().router_margin = variant.at("router_margin").at(i).get<double>();
    result.positions.back().measured_deviation = variant.at("deviation").at(i).get<double>();
  }
  result.greedy = variant.at("greedy").at("tokens").get<std::vector<int32_t>>();
  return result;
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read; tests run from the source root"));
  return Json::parse(file);
}

}  // namespace

absl::StatusOr<std::vector<GoldenCase>> ReadGoldenCases(const std::string& directory) try {
  MOE_ASSIGN_OR_RETURN(const Json manifest, ReadJson(directory + "/manifest.json"));
  std::vector<GoldenCase> cases;
  for (const Json& file : manifest.at("cases")) {
    MOE_ASSIGN_OR_RETURN(const Json json, ReadJson(directory + "/" + file.get<std::string>()));
    cases.push_back(ReadCase(json));
  }
  return cases;
} catch (const Json::exception& error) {
  return absl::InvalidArgumentError(absl::StrCat(directory, ": ", error.what()));
}

}  // namespace moestro::model
