// What the server answers to a request of a batch, what that means, and the line of the output that tells it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/batch/journal.h"
#include "common/batch/request_file.h"

namespace moestro::batch {

struct Reply {
  int status = 0;  // of HTTP; 0: no answer came
  std::string body = {};
  std::chrono::milliseconds retry_after{0};  // what the server asks for
  std::string failure = {};                  // why no answer came
};

enum class Verdict {
  kDone,      // the answer, or an error that another try would not change
  kRetry,     // the server or a role is away or busy: as often as it takes
  kRetryFew,  // its own error: another try may help, but after a few the error is the result
  kRefused,   // every request would get this: the caller must not call
};
Verdict Judge(const Reply& reply);

// For messages: "HTTP 503: prefill does not answer".
std::string Describe(const Reply& reply);

// How long to wait before try `tries` + 1: doubles from 0.25 to 8 s, at least what the server asks for (up to an hour
// of it), and up to half as much again, so that many requests do not come back at once. `random`: any number.
std::chrono::milliseconds PauseAfter(int tries, const Reply& reply, uint64_t random);

// The output's line for a request with this answer: {"id", "custom_id", "response": {"status_code", "request_id",
// "body"}, "error": null}. An answer that is no JSON object has no response, and an error. `id`: of the line.
Result ResultOf(const Request& request, const std::string& id, const Reply& reply);

}  // namespace moestro::batch
