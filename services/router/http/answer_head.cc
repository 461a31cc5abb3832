#include "services/router/http/answer_head.h"

#include <atomic>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace moestro::router {

std::string NewRequestId() {
  static const uint64_t start = std::random_device()() | uint64_t{std::random_device()()} << 32;
  static std::atomic<uint64_t> count{0};
  return absl::StrCat("req_", absl::Hex(start, absl::kZeroPad16), absl::Hex(count++, absl::kZeroPad8));
}

std::string AnswerHead(const ResponseHead& head, const AnswerFrame& frame, const CallerRules& callers) {
  std::string wire = absl::StrCat("HTTP/1.1 ", head.status, " ", ReasonPhrase(head.status), "\r\n");
  for (const auto& [name, value] : head.headers) absl::StrAppend(&wire, name, ": ", value, "\r\n");
  if (!callers.cors_origin.empty()) {
    absl::StrAppend(&wire, "Access-Control-Allow-Origin: ", callers.cors_origin, "\r\n");
    if (callers.cors_origin != "*") absl::StrAppend(&wire, "Vary: Origin\r\n");
  }
  if (head.length && head.status != 204) absl::StrAppend(&wire, "Content-Length: ", *head.length, "\r\n");
  if (frame.chunked) absl::StrAppend(&wire, "Transfer-Encoding: chunked\r\n");
  absl::StrAppend(&wire, "Date: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
                  "\r\n");
  // OpenAI's clients show the first, Anthropic's the second.
  absl::StrAppend(&wire, "x-request-id: ", frame.request_id, "\r\nrequest-id: ", frame.request_id, "\r\n");
  absl::StrAppend(&wire, "Connection: ", frame.keep_alive ? "keep-alive" : "close", "\r\n\r\n");
  return wire;
}

std::string LastAnswer(int status, const std::string& message, const CallerRules& callers) {
  const HttpError error = ErrorAt(/*path=*/"", status, message);
  const ResponseHead head{.status = error.status, .headers = HeadersOf(error), .length = error.body.size()};
  return AnswerHead(head, {.request_id = NewRequestId()}, callers) + error.body;
}

}  // namespace moestro::router
