#include "common/process/server_options.h"

#include "common/process/flags.h"

namespace moestro {

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host.starts_with("127.") || host == "[::1]" || host == "::1";
}

void AddServerOptions(FlagSet& flags, ServerOptions& options) {
  flags.Add("--server", options.address, "Address of the router: HOST:PORT or unix:PATH")
      .FromEnvironment("MOESTRO_SERVER");
  AddConnectTimeout(flags, options.connect_seconds);
}

void AddConnectTimeout(FlagSet& flags, double& connect_seconds) {
  flags
      .Add("--connect-timeout", connect_seconds,
           "Seconds that a connection may take until the server has answered, TLS included. "
           "Raise it for a far or busy server. Where nothing listens, the command fails at once")
      .Range(0.001, 3600.0)
      .TypeName("SECONDS");
}

}  // namespace moestro
