// Settings of the router.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/access/tls_files.h"
#include "common/process/choice.h"
#include "common/process/node_options.h"
#include "services/router/admission/choose_path.h"

namespace moestro::router {

// Where prompts run: long ones in prefill beside decode, or all of them in decode.
enum class PathMode { kSplit, kUnified };
inline constexpr std::array<Choice<PathMode>, 2> kPathModeWords = {
    {{"split", PathMode::kSplit}, {"unified", PathMode::kUnified}}};

// How a node in split mode chooses (admission/choose_path.h).
enum class PathRule { kPredicted, kPaper };
inline constexpr std::array<Choice<PathRule>, 2> kPathRuleWords = {
    {{"predicted", PathRule::kPredicted}, {"paper", PathRule::kPaper}}};

// Whether the router goes before the roles that compute. Off by default: on two cores it adds less to each request
// then, but takes decode's time, and first tokens come later (deploy/README.md, CPUs).
enum class RealTime { kAuto, kOff };
inline constexpr std::array<Choice<RealTime>, 2> kRealTimeWords = {
    {{"auto", RealTime::kAuto}, {"off", RealTime::kOff}}};

struct RouterConfig {
  NodeOptions node;
  std::string grpc_address = "127.0.0.1:50051";  // the client API; loopback by default
  std::string http_address = "127.0.0.1:8080";   // OpenAI's API over HTTP; empty: none
  int http_connections = 4096;                   // that may be open at once
  int http_keep_alive_seconds = 10;              // a comment in streams that are silent for this long; 0: none
  std::string cors_origin;                       // whose pages may call from a browser; empty: nobody's
  std::vector<std::string> http_hosts;           // names by which clients may call, beside private ones
  std::string keys_file;                         // API keys; empty: nobody needs one
  bool allow_anonymous = false;                  // without keys, listen where others can reach it
  access::TlsFiles tls;                          // of clients over HTTP, and over gRPC on TCP
  std::vector<std::string> model_aliases;        // names of the model, beside its own
  bool strict_model_names = false;               // other names reach no model
  int default_max_tokens = 0;                    // for requests that set no max_tokens; 0: what the checkpoint says
  std::string batch_dir;                         // where files and batches are kept; empty: none are
  int batch_in_flight = 32;                      // requests of each key's batch at once
  int queue_limit = 256;                         // requests that may wait for KV pages
  int recovery_seconds = 60;                     // how long requests wait for a role; above drain and start
  int write_stall_seconds = 30;                  // a client that reads nothing for this long is cut off
  RealTime real_time = RealTime::kOff;
  PathMode mode = PathMode::kSplit;
  PathRule path_policy = PathRule::kPredicted;
  int chunked_below_tokens = 2048;       // prompts with fewer new tokens are short: they go to decode in either mode
  int decode_idle_window_seconds = 300;  // decode counts as in use for this long after its last work
};

// INVALID_ARGUMENT names the flag.
absl::Status ValidateRouterConfig(const RouterConfig& config);

// REQUIRES: `config` is valid.
PathSettings PathSettingsOf(const RouterConfig& config);

}  // namespace moestro::router
