#include "services/cli/client/credentials.h"

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/access/api_key.h"
#include "common/base/read_file.h"
#include "common/base/status.h"

namespace moestro::cli {

void AddCredentialFlags(CLI::App& app, CredentialFlags& flags) {
  app.add_option(
         "--api-key-file", flags.api_key_file,
         "File with the API key, if the router needs one. Not the key itself: others could read it in the list of "
         "processes")
      ->envname("MOESTRO_API_KEY_FILE");
  app.add_option("--tls-ca", flags.tls_ca,
                 "TLS: PEM file of the authorities, one of which must vouch for the router's certificate")
      ->envname("MOESTRO_TLS_CA");
}

absl::StatusOr<std::string> ReadApiKey(const CredentialFlags& flags) {
  if (flags.api_key_file.empty()) return std::string();
  MOE_ASSIGN_OR_RETURN(std::string key, ReadFile(flags.api_key_file));
  absl::StripAsciiWhitespace(&key);
  if (access::IsApiKey(key)) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("--api-key-file ", flags.api_key_file, ": holds no API key (moe_...)"));
}

}  // namespace moestro::cli
