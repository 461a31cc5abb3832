// moestro-router: the front door of a node.

#include "common/base/status.h"
#include "common/process/flags.h"
#include "common/process/process.h"
#include "services/router/server.h"

int main(int argc, char** argv) {
  moestro::TerminationSignal termination;
  moestro::router::RouterConfig config;
  moestro::ProgramFlags flags{
      "moestro-router: the front door of a moestro node.\n"
      "Serves the gRPC API (moestro.v1.InferenceService, health, reflection) on --grpc-address and on a unix socket in "
      "--run-dir, and the OpenAI API over HTTP on --http-address.\n"
      "Tokenizes and queues requests, has prefill and decode compute them, and streams the answers. When prefill or "
      "decode dies, requests resume at the exact token where they stopped.\n"
      "Holds no weights; learns the model from the weight store.\n"
      "Prints 'moestro-router ready grpc=HOST:PORT http=HOST:PORT' on stdout once it listens; logs go to stderr.\n"
      "Exit codes: 0 drained after SIGTERM, 1 failed, 2 a flag is wrong, 3 an address is taken."};
  moestro::AddNodeOptions(flags, "router", config.node);
  flags
      .Add("--grpc-address", config.grpc_address,
           "HOST:PORT of the client API; one that others reach needs --keys-file or --allow-anonymous")
      .Because("nobody else can reach it");
  flags
      .Add("--http-address", config.http_address,
           "HOST:PORT of the OpenAI API over HTTP; off: none. The same holds for it")
      .Because("nobody else can reach it; the port that clients try first");
  flags.Add("--http-connections", config.http_connections, "HTTP connections that may be open at once")
      .Because("far above what a workstation's users open");
  flags
      .Add("--http-keep-alive-seconds", config.http_keep_alive_seconds,
           "Streams over HTTP that are silent for this long get a comment, so that no proxy ends them; 0: never")
      .Because("proxies end connections that are silent for 30 to 60 s");
  flags
      .Add("--cors-origin", config.cors_origin,
           "Whose pages may call over HTTP from a browser: an origin (https://example.org), or * for everybody's")
      .Because("no web page may use a node without its owner's word");
  flags
      .Add("--http-host", config.http_hosts,
           "Public names, with commas between them, by which clients call over HTTP where no key is needed; *: any. "
           "Addresses, names without a dot and those of .localhost, .local and .internal are always right. None, on "
           "an address that others reach: any. This keeps web pages out that point a name at this machine")
      .Delimiter(',')
      .Because("no web page may use a node by a name of its own");
  flags
      .Add("--keys-file", config.keys_file,
           "File of API keys (moestro keys add); read again when it changes and after SIGHUP. Then every call "
           "needs a key, except over the unix socket. Empty: no call needs one")
      .Because("nobody else can reach the addresses");
  flags
      .Add("--tls-cert", config.tls.certificate,
           "TLS for HTTP, and for gRPC over TCP: PEM file of the certificate and those that lead to its "
           "authority. This file "
           "and the next two are read again when they change")
      .Because("nobody else can reach the addresses");
  flags.Add("--tls-key", config.tls.key, "PEM file of its private key").Because("belongs to --tls-cert");
  flags
      .Add("--tls-client-ca", config.tls.client_ca,
           "PEM file of authorities: a client needs a certificate of one of them")
      .Because("keys say who calls");
  flags
      .AddSwitch("--allow-anonymous", config.allow_anonymous,
                 "Without --keys-file, accept a --grpc-address that others reach")
      .Because("others must not reach a node by mistake");
  flags
      .Add("--model-aliases", config.model_aliases,
           "Names of the model, with commas between them, that are listed beside its own over HTTP")
      .Delimiter(',')
      .Because("the model's name is enough");
  flags
      .AddSwitch("--strict-model-names", config.strict_model_names,
                 "Over HTTP, requests for any other model are 404. Without it they get the served one, and the answer "
                 "tells its name")
      .Because("names that clients have built in reach the one model that is there");
  flags
      .Add("--max-context-tokens", config.max_context_tokens,
           "Longest context that is announced and accepted, prompt and answer together; 0: what the model and decode's "
           "KV pool can hold")
      .Because("found at the start");
  flags
      .Add(
          "--default-max-tokens", config.default_max_tokens,
          "Most tokens of an answer when a request sets no max_tokens; 0: the checkpoint's max_new_tokens, else to the "
          "end of the context")
      .Because("answers end where the model ends them, or the context does");
  flags
      .Add("--batch-dir", config.batch_dir,
           "Folder for /v1/files and /v1/batches, which survive a restart in it; made if it is missing. Each key "
           "sees its own, and may keep 1000 files and 8 GiB. Empty: both answer 404")
      .Because("the owner says where files of clients may lie");
  flags
      .Add("--batch-in-flight", config.batch_in_flight,
           "Requests at once of the batch that runs; one batch of each key does. More give more tokens/s and let "
           "other requests wait longer. 0: as many as decode computes at once, less one with mode latency")
      .Because("found at the start");
  flags.Add("--queue-limit", config.queue_limit, "Requests that may wait for KV pages; further requests are refused")
      .Because("those behind would wait for minutes; clients try again");
  flags
      .Add("--recovery-seconds", config.recovery_seconds,
           "How long requests wait for a role that died or restarts. Then they fail, but long prompts go to decode. "
           "Set it above the roles' --drain-seconds plus a start, or a restart fails requests")
      .Because("a role that drains takes 30, and starts in seconds");
  flags
      .Add("--write-stall-seconds", config.write_stall_seconds,
           "A client that reads nothing of its answer for this long loses its call")
      .Because("a client that lives reads within seconds");
  moestro::AddChoice(flags, "--real-time", moestro::router::kRealTimeWords, config.real_time,
                     "auto: real-time priority where it is permitted (RLIMIT_RTPRIO 1), so that requests and tokens do "
                     "not wait in the router behind the roles that compute; off: the priority it was started with")
      .Because("on two cores it takes decode's time, and first tokens come later");
  moestro::AddChoice(flags, "--mode", moestro::router::kPathModeWords, config.mode,
                     "split: long prompts run in prefill, beside decode; unified: every prompt runs in decode, and "
                     "only Score needs prefill")
      .Because("running answers go on at their pace beside a long prompt");
  moestro::AddChoice(flags, "--path-policy", moestro::router::kPathRuleWords, config.path_policy,
                     "With --mode split: predicted: prompts run where the first token comes soonest, as the roles "
                     "predict from what they measure at their start; paper: by --chunked-below-tokens, and in prefill "
                     "by its --stream-from-tokens")
      .Because("the roles measure what prompts take");
  flags
      .Add("--chunked-below-tokens", config.chunked_below_tokens,
           "With --mode split: prompts with fewer new (not cached) tokens run in decode, in chunks. With "
           "--path-policy predicted: until the roles have measured, and where the prediction is within 10 %")
      .Because("only where the roles have measured nothing, or both ways take as long");
  flags
      .Add("--decode-idle-window-seconds", config.decode_idle_window_seconds,
           "With --mode split: a long prompt gets the whole machine when decode has had no work for this long")
      .Because("one who reads an answer asks again within minutes");
  return moestro::RunRole(flags, argc, argv, "router", config.node, [&]() -> absl::Status {
    if (config.http_address == "off") config.http_address.clear();
    MOE_RETURN_IF_ERROR(moestro::router::ValidateRouterConfig(config));
    return moestro::router::RunRouterServer(config, termination);
  });
}
