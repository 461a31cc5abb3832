// How a command finds the server that it talks to, and how long it waits for a connection.
#pragma once

#include <string>

namespace moestro {

class FlagSet;

// A busy server answers late, and over a network TLS takes several round trips.
inline constexpr double kConnectSeconds = 10;

struct ServerOptions {
  std::string address = "127.0.0.1:50051";   // HOST:PORT or unix:PATH
  double connect_seconds = kConnectSeconds;  // of one attempt to connect
};

// Whether only programs on this machine reach HOST:PORT: "localhost", 127.x.x.x or [::1].
bool IsLoopback(const std::string& address);

// Adds --server (or MOESTRO_SERVER) and --connect-timeout.
void AddServerOptions(FlagSet& flags, ServerOptions& options);

// Adds --connect-timeout alone, for a command with another kind of address.
void AddConnectTimeout(FlagSet& flags, double& connect_seconds);

}  // namespace moestro
