#include "services/cli/plan/paper_claims.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

Json Outcome(const PaperFigure& figure) {
  if (std::isnan(figure.simulated)) return {{"simulated", nullptr}};
  if (figure.fitted) return {{"simulated", figure.simulated}, {"fitted", true}};
  return {{"simulated", figure.simulated}, {"deviation", figure.simulated / figure.paper - 1}};
}

std::string OutcomeText(const Json& outcome) {
  if (outcome["simulated"].is_null()) return "not reached          ";
  const std::string value = absl::StrFormat("%10.5g", outcome["simulated"].get<double>());
  if (outcome.contains("fitted")) return value + "     fitted";
  return value + absl::StrFormat(" %+8.1f %%", 100 * outcome["deviation"].get<double>());
}

}  // namespace

Json PaperClaims(const PaperComparison& comparison) {
  const auto& [built, paper_way] = comparison;
  MOE_CHECK(built.size() == paper_way.size());
  Json claims = Json::array();
  for (size_t i = 0; i < built.size(); ++i) {
    claims.push_back({{"what", built[i].what},
                      {"paper", built[i].paper},
                      {"built", Outcome(built[i])},
                      {"paper_way", Outcome(paper_way[i])}});
  }
  return claims;
}

void PrintClaims(const Json& claims) {
  PrintText(
      "\nDeepSeek-V3 in the paper                            paper   as built  deviation  paper's way  deviation\n");
  for (const auto& claim : claims) {
    PrintText(absl::StrFormat("%-47s %9.7g %s   %s\n", claim["what"].get<std::string>(), claim["paper"].get<double>(),
                              OutcomeText(claim["built"]), OutcomeText(claim["paper_way"])));
  }
  PrintText(
      "As built: with the rates of the kernels here. Paper's way: products of FP8 values at the rate that the file "
      "assumes,\n"
      "and one launch per expert. Fitted: a value of the hardware file was chosen to give this figure.\n");
}

}  // namespace moestro::cli
