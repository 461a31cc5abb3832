#include "services/cli/client/credentials.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/access/api_key.h"
#include "common/base/read_file.h"
#include "common/base/status.h"
#include "common/process/flags.h"

namespace moestro::cli {

void AddCredentialFlags(FlagSet& command, CredentialFlags& flags) {
  command
      .Add("--api-key-file", flags.api_key_file,
           "File with the API key, if the router needs one. Not the key itself: others could read it in the list of "
           "processes")
      .FromEnvironment("MOESTRO_API_KEY_FILE");
  command
      .Add("--tls-ca", flags.tls_ca,
           "TLS: PEM file of the authorities, one of which must vouch for the router's certificate")
      .FromEnvironment("MOESTRO_TLS_CA");
}

absl::StatusOr<Credentials> ReadCredentials(const CredentialFlags& flags) {
  Credentials read;
  if (!flags.tls_ca.empty()) {
    MOE_ASSIGN_OR_RETURN(read.authorities, ReadFile(flags.tls_ca));
  }
  MOE_ASSIGN_OR_RETURN(read.api_key, ReadApiKey(flags));
  return read;
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
