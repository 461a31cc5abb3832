// An HTTP request as endpoints see it. Nothing here knows the wire.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace moestro::router {

class Tenant;

struct RequestHead {
  std::string method;                               // "GET"
  std::string path;                                 // "/v1/models", decoded, without the query
  std::string query = {};                           // "a=1&b=2", as it was sent
  std::map<std::string, std::string> headers = {};  // names in lower case; of repeated ones the first
  std::string peer = {};                            // address of the client, without its port

  // The value of a header; empty if there is none.
  std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

// The bytes of all bodies that are being received or wait to be parsed. Thread-safe.
struct BodyBytes {
  std::atomic<uint64_t> all{0};
};

// A body, counted in `BodyBytes` for as long as it lives. Movable.
class RequestBody {
 public:
  RequestBody() = default;
  explicit RequestBody(BodyBytes& bytes) : bytes_(&bytes) {}
  RequestBody(RequestBody&& other) noexcept { *this = std::move(other); }
  RequestBody& operator=(RequestBody&& other) noexcept {
    text = std::exchange(other.text, {});
    std::swap(bytes_, other.bytes_);
    std::swap(counted_, other.counted_);
    return *this;
  }
  ~RequestBody() {
    if (bytes_ != nullptr) bytes_->all -= counted_;
  }

  // Counts `bytes` more, and returns the sum of all bodies.
  uint64_t Count(uint64_t bytes) {
    counted_ += bytes;
    return bytes_->all += bytes;
  }

  std::string text;

 private:
  BodyBytes* bytes_ = nullptr;
  uint64_t counted_ = 0;
};

struct HttpRequest {
  RequestHead head = {};
  std::shared_ptr<Tenant> tenant = {};  // who calls; null if everybody may
  RequestBody body;                     // an endpoint moves it away, and drops it when it is parsed
};

}  // namespace moestro::router
