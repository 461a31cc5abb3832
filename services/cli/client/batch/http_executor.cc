#include "services/cli/client/batch/http_executor.h"

#include <curl/curl.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace moestro::cli {
namespace {

// A server whose machine has gone is noticed after about two minutes.
constexpr long kKeepAliveSeconds = 60;
constexpr long kKeepAliveInterval = 20;
constexpr size_t kMaxReplyBytes = size_t{128} << 20;

size_t Append(char* data, size_t /*one*/, size_t bytes, void* out) {
  std::string& body = *static_cast<std::string*>(out);
  if (body.size() + bytes > kMaxReplyBytes) return 0;
  body.append(data, bytes);
  return bytes;
}

// Called about once a second, and whenever something arrives. Not 0: the call ends.
int Continue(void* cancelled, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const std::atomic<bool>*>(cancelled) ? 1 : 0;
}

}  // namespace

absl::StatusOr<std::string> BaseUrl(const std::string& text) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  MOE_CHECK(url != nullptr);
  const std::string whole = absl::StrContains(text, "://") ? text : "http://" + text;
  char* query = nullptr;
  const bool valid = (whole.starts_with("http://") || whole.starts_with("https://")) &&
                     curl_url_set(url.get(), CURLUPART_URL, whole.c_str(), 0) == CURLUE_OK &&
                     curl_url_get(url.get(), CURLUPART_QUERY, &query, 0) == CURLUE_NO_QUERY;
  curl_free(query);
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat("--url ", text, ": use http://HOST:PORT or https://HOST:PORT"));
  }
  std::string base = whole;
  while (base.ends_with('/')) base.pop_back();
  // Clients of OpenAI's API take the address with the version.
  return base.ends_with("/v1") ? base.substr(0, base.size() - 3) : base;
}

class HttpExecutor::Connection {
 public:
  explicit Connection(const HttpExecutor& executor)
      : curl_(curl_easy_init(), curl_easy_cleanup), headers_(nullptr, curl_slist_free_all) {
    MOE_CHECK(curl_ != nullptr);
    AddHeader("Content-Type: application/json");
    AddHeader("Expect:");  // no pause before bodies
    if (!executor.authorization_.empty()) AddHeader(executor.authorization_);
    Set(CURLOPT_HTTPHEADER, headers_.get());
    Set(CURLOPT_PROXY, "");
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(executor.connect_seconds_ * 1000));
    Set(CURLOPT_TCP_KEEPALIVE, 1L);
    Set(CURLOPT_TCP_KEEPIDLE, kKeepAliveSeconds);
    Set(CURLOPT_TCP_KEEPINTVL, kKeepAliveInterval);
    if (!executor.tls_ca_.empty()) Set(CURLOPT_CAINFO, executor.tls_ca_.c_str());
    Set(CURLOPT_WRITEFUNCTION, Append);
    Set(CURLOPT_ERRORBUFFER, reason_);
    Set(CURLOPT_NOPROGRESS, 0L);
    Set(CURLOPT_XFERINFOFUNCTION, Continue);
    Set(CURLOPT_XFERINFODATA, &executor.cancelled_);
  }

  batch::Reply Post(const std::string& url, const std::string& body) {
    batch::Reply reply;
    reason_[0] = '\0';
    Set(CURLOPT_URL, url.c_str());
    Set(CURLOPT_POSTFIELDS, body.c_str());
    Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    Set(CURLOPT_WRITEDATA, &reply.body);
    const CURLcode result = curl_easy_perform(curl_.get());
    if (result != CURLE_OK) {
      reply.failure = absl::StrCat(url, ": ", reason_[0] != '\0' ? reason_ : curl_easy_strerror(result));
      return reply;
    }
    long code = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(curl_.get(), CURLINFO_RETRY_AFTER, &retry_after);
    reply.status = static_cast<int>(code);
    reply.retry_after = std::chrono::seconds(retry_after);
    return reply;
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    curl_easy_setopt(curl_.get(), option, value);
  }
  void AddHeader(const std::string& header) {
    curl_slist* const longer = curl_slist_append(headers_.get(), header.c_str());
    MOE_CHECK(longer != nullptr);
    headers_.release();
    headers_.reset(longer);
  }

  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_;
  char reason_[CURL_ERROR_SIZE] = "";
};

HttpExecutor::HttpExecutor(std::string base, const std::string& api_key, std::string tls_ca, double connect_seconds)
    : base_(std::move(base)),
      authorization_(api_key.empty() ? "" : "Authorization: Bearer " + api_key),
      tls_ca_(std::move(tls_ca)),
      connect_seconds_(connect_seconds) {
  curl_global_init(CURL_GLOBAL_DEFAULT);  // before there are threads
}

HttpExecutor::~HttpExecutor() = default;

std::unique_ptr<HttpExecutor::Connection> HttpExecutor::Take() {
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Connection> connection = std::move(free_.back());
      free_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>(*this);
}

void HttpExecutor::PutBack(std::unique_ptr<Connection> connection) {
  MutexLock lock(mutex_);
  free_.push_back(std::move(connection));
}

batch::Reply HttpExecutor::Execute(const batch::Request& request) {
  std::unique_ptr<Connection> connection = Take();
  batch::Reply reply = connection->Post(base_ + request.url, request.body);
  PutBack(std::move(connection));
  return reply;
}

}  // namespace moestro::cli
