#include "common/batch/reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"

namespace moestro::batch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kFirstPause{250};
constexpr std::chrono::milliseconds kLongestPause{8000};
// Of what a server may ask for: a batch must not stop for days because of one reply.
constexpr std::chrono::seconds kLongestAsked{3600};

Json ParseObject(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? std::move(json) : Json();
}

// The number at `outer`.`inner`, or 0.
uint64_t CountAt(const Json& json, const char* outer, const char* inner) {
  const auto found = json.find(outer);
  if (found == json.end() || !found->is_object()) return 0;
  const auto count = found->find(inner);
  return count != found->end() && count->is_number_unsigned() ? count->get<uint64_t>() : 0;
}

std::string TextAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Verdict Judge(const Reply& reply) {
  switch (reply.status) {
    case 0:    // nobody answers
    case 408:  // the body came too slowly
    case 425:
    case 429:
    case 502:  // a proxy whose server is away
    case 503:
      return Verdict::kRetry;
    case 401:
    case 403:
      return Verdict::kRefused;
    case 409:
    case 499:
      return Verdict::kRetryFew;
    default:
      return reply.status >= 500 && reply.status != 501 ? Verdict::kRetryFew : Verdict::kDone;
  }
}

std::string Describe(const Reply& reply) {
  if (reply.status == 0) return reply.failure;
  const Json body = ParseObject(reply.body);
  const auto error = body.find("error");
  const std::string message = error != body.end() && error->is_object() ? TextAt(*error, "message") : "";
  return absl::StrCat("HTTP ", reply.status, message.empty() ? "" : ": ", text::Printable(message));
}

std::chrono::milliseconds PauseAfter(int tries, const Reply& reply, uint64_t random) {
  const auto doubled = kFirstPause * (1 << std::clamp(tries - 1, 0, 10));
  const auto asked = std::min<std::chrono::milliseconds>(reply.retry_after, kLongestAsked);
  const auto pause = std::max(std::min(doubled, kLongestPause), asked);
  return pause + pause * static_cast<int64_t>(random % 512) / 1024;
}

Result ResultOf(const Request& request, const std::string& id, const Reply& reply) {
  const Json body = ParseObject(reply.body);
  Json line = {{"id", id}, {"custom_id", request.custom_id}, {"response", nullptr}, {"error", nullptr}};
  const bool answered = body.is_object();
  if (answered) {
    line["response"] = {{"status_code", reply.status}, {"request_id", TextAt(body, "id")}, {"body", body}};
  } else {
    line["error"] = {{"code", "invalid_reply"}, {"message", absl::StrCat(Describe(reply), ", without a JSON object")}};
  }
  const uint64_t tokens =
      std::max(CountAt(body, "usage", "completion_tokens"), CountAt(body, "usage", "output_tokens"));
  return {.ok = answered && reply.status >= 200 && reply.status < 300,
          .generated_tokens = tokens,
          .line = line.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace moestro::batch
