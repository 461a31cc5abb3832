#include "services/cli/paper_claims.h"

#include "absl/strings/str_format.h"
#include "services/cli/output.h"

namespace moestro {

nlohmann::ordered_json Claim(const std::string& what, double paper, double simulated) {
  return {{"what", what}, {"paper", paper}, {"simulated", simulated}, {"deviation", simulated / paper - 1}};
}

void PrintClaims(const nlohmann::ordered_json& claims) {
  PrintText("\nDeepSeek-V3 in the paper                            paper  simulated  deviation\n");
  for (const auto& claim : claims) {
    PrintText(absl::StrFormat("%-47s %9.7g %10.5g %+8.1f %%\n", claim["what"].get<std::string>(),
                              claim["paper"].get<double>(), claim["simulated"].get<double>(),
                              100 * claim["deviation"].get<double>()));
  }
}

}  // namespace moestro
