#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/access/api_key.h"
#include "common/access/keys_file.h"
#include "common/base/status.h"
#include "common/report/table.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct KeysFlags {
  std::string file;
  access::KeyEntry entry;
  std::string cache_scope = "own";
  std::vector<std::string> endpoints;  // empty: the default
  std::string expires;
};

absl::Status Complete(const KeysFlags& flags, access::KeyEntry& entry) {
  entry.shared_cache = flags.cache_scope == "shared";
  if (!flags.endpoints.empty()) entry.endpoints.fill(false);
  for (const std::string& name : flags.endpoints) {
    for (const access::Endpoint endpoint : access::kEndpoints) {
      if (name == access::EndpointName(endpoint)) entry.endpoints[static_cast<size_t>(endpoint)] = true;
    }
  }
  std::string problem;
  if (flags.expires.empty() || absl::ParseTime("%Y-%m-%d", flags.expires, &entry.expires, &problem)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--expires ", flags.expires, ": must be a day such as 2027-01-31"));
}

absl::Status Add(const KeysFlags& flags) {
  access::KeyEntry entry = flags.entry;
  MOE_RETURN_IF_ERROR(Complete(flags, entry));
  MOE_ASSIGN_OR_RETURN(const std::string key, access::NewApiKey());
  MOE_RETURN_IF_ERROR(access::AddKey(flags.file, entry, key));
  PrintText(key + "\n");
  std::fprintf(stderr, "This is the only time that the key is shown: %s holds its hash.\n", flags.file.c_str());
  return absl::OkStatus();
}

std::string LimitText(const std::optional<int64_t>& limit) { return limit ? absl::StrCat(*limit) : "-"; }

std::string ExpiryText(absl::Time expires) {
  if (expires == absl::InfiniteFuture()) return "never";
  const std::string moment = absl::FormatTime("%Y-%m-%d %H:%M UTC", expires, absl::UTCTimeZone());
  return expires > absl::Now() ? moment : moment + ", expired";
}

absl::Status List(const KeysFlags& flags) {
  MOE_ASSIGN_OR_RETURN(const access::KeysFile file, access::ReadKeysFile(flags.file));
  Table table{.columns = {"name", "endpoints", "cache", "expires", "weight", "requests/min", "tokens/min", "burst",
                          "running", "waiting", "max tokens", "context"},
              .rows = {},
              .text_columns = 4};
  for (const access::KeyEntry& key : file.keys) {
    std::vector<std::string> endpoints;
    for (const access::Endpoint endpoint : access::kEndpoints) {
      if (key.allows(endpoint)) endpoints.emplace_back(access::EndpointName(endpoint));
    }
    const access::TenantLimits& limits = key.limits;
    table.rows.push_back({key.name, absl::StrJoin(endpoints, ", "), key.shared_cache ? "shared" : "own",
                          ExpiryText(key.expires), absl::StrCat(key.weight), LimitText(limits.requests_per_minute),
                          LimitText(limits.tokens_per_minute), LimitText(limits.burst_tokens),
                          LimitText(limits.running), LimitText(limits.waiting), LimitText(limits.max_tokens),
                          LimitText(limits.context)});
  }
  PrintText(MarkdownTable(table));
  return absl::OkStatus();
}

}  // namespace

void AddKeysCommands(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<KeysFlags>();
  FlagSet keys = program.AddCommand("keys", "API keys of a router (moestro-router --keys-file)");
  keys.RequireCommands(1, 1);
  const auto add_file = [&](FlagSet& command) {
    command.Add("--file", flags->file, "File of the keys' hashes").Required();
  };
  FlagSet add = keys.AddCommand("add", "Make a key: prints it, once, and adds its hash to the file");
  add_file(add);
  access::KeyEntry& entry = flags->entry;
  add.Add("--name", entry.name, "Who gets it: the tenant, in logs and metrics").Required();
  add.Add("--weight", entry.weight, "Share of the machine among keys whose requests wait").Positive();
  const auto add_limit = [&](const char* flag, std::optional<int64_t>& limit, const char* help) {
    add.Add(flag, limit, absl::StrCat(help, "; default: no limit")).Positive();
  };
  add_limit("--requests-per-minute", entry.limits.requests_per_minute, "Requests in a minute");
  add_limit("--tokens-per-minute", entry.limits.tokens_per_minute,
            "Tokens in a minute: prompts, and answers as they grow");
  add.Add("--burst-tokens", entry.limits.burst_tokens,
          "Of --tokens-per-minute at once, so the most of one prompt; default: those of one minute")
      .Positive();
  add_limit("--running", entry.limits.running, "Requests at once; others wait");
  add_limit("--waiting", entry.limits.waiting, "Requests that may wait; others are refused");
  add_limit("--max-tokens", entry.limits.max_tokens, "Tokens that a request may generate");
  add_limit("--context", entry.limits.context, "Tokens of a request's prompt and answer");
  add.Add("--cache-scope", flags->cache_scope,
          "own: nobody else finds its cached prompts; shared: keys with this word find each other's")
      .OneOf({"own", "shared"});
  add.Add("--endpoints", flags->endpoints, "What it may call; default: generate,score,tokenize")
      .Delimiter(',')
      .OneOf({"generate", "score", "tokenize", "admin"});
  add.Add("--expires", flags->expires, "First day, UTC, on which it is refused: 2027-01-31; default: never");
  commands.push_back({add, [flags] { return Add(*flags); }});

  FlagSet list = keys.AddCommand("list", "Names and limits; the file holds no keys");
  add_file(list);
  commands.push_back({list, [flags] { return List(*flags); }});
}

}  // namespace moestro::cli
