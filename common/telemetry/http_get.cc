#include "common/telemetry/http_get.h"

#include <curl/curl.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace moestro {
namespace {

constexpr size_t kMaxBodyBytes = size_t{8} << 20;  // a role's metrics have some 100 KB

// A result below `bytes` ends the transfer.
size_t Append(char* data, size_t /*one*/, size_t bytes, void* out) {
  std::string& body = *static_cast<std::string*>(out);
  if (body.size() + bytes > kMaxBodyBytes) return 0;
  body.append(data, bytes);
  return bytes;
}

}  // namespace

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  MOE_CHECK(url != nullptr);
  const auto part = [&](CURLUPart which) {
    char* value = nullptr;
    curl_url_get(url.get(), which, &value, 0);
    const std::string found = value == nullptr ? "" : value;
    curl_free(value);
    return found;
  };
  const std::string whole = absl::StrContains(text, "://") ? text : "http://" + text;
  const bool valid = curl_url_set(url.get(), CURLUPART_URL, whole.c_str(), 0) == CURLUE_OK;
  if (!valid || part(CURLUPART_SCHEME) != "http" || part(CURLUPART_PORT).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a metrics address: use http://HOST:PORT/metrics or HOST:PORT"));
  }
  if (part(CURLUPART_PATH) == "/") curl_url_set(url.get(), CURLUPART_PATH, "/metrics", 0);
  return Url{.text = part(CURLUPART_URL), .host = part(CURLUPART_HOST), .port = part(CURLUPART_PORT)};
}

absl::StatusOr<std::string> HttpGet(const Url& url, double timeout_seconds) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
  MOE_CHECK(curl != nullptr);
  std::string body;
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.text.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(1000 * timeout_seconds));
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_QUICK_EXIT, 1L);  // otherwise it would wait for a hung resolver
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode result = curl_easy_perform(curl.get());
  if (result == CURLE_OPERATION_TIMEDOUT) {
    return absl::DeadlineExceededError(absl::StrCat(url.text, ": no answer within ", timeout_seconds, " s"));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(absl::StrCat(url.text, ": ", *reason != '\0' ? reason : curl_easy_strerror(result)));
  }
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  if (code != 200) return absl::UnavailableError(absl::StrCat(url.text, ": HTTP status ", code));
  return body;
}

}  // namespace moestro
