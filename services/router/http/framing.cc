#include "services/router/http/framing.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
#include <iterator>

#include "absl/strings/ascii.h"
#include "common/text/concat.h"

namespace moestro::router {

namespace http = boost::beast::http;

namespace {

bool IsCount(std::string_view text) { return !text.empty() && std::ranges::all_of(text, absl::ascii_isdigit); }

// What a reg-name, an address and a port consist of (RFC 3986 3.2.2).
bool IsHost(std::string_view host) {
  return std::ranges::all_of(host, [](unsigned char c) {
    return absl::ascii_isalnum(c) ||
           std::string_view("-._~%!$&'()*+,;=:[]").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

}  // namespace

std::optional<FramingError> CheckFraming(const http::header<true, http::fields>& header, std::string_view bytes) {
  const auto wrong = [](std::string_view what) { return FramingError{400, text::Concat("not HTTP/1.1: ", what)}; };
  const auto value = [&](http::field name) {
    const auto found = header[name];
    return std::string_view(found.data(), found.size());
  };
  if (header.version() != 10 && header.version() != 11) return wrong("the version must be 1.0 or 1.1");
  if (bytes.find("\r\n ") != std::string_view::npos || bytes.find("\r\n\t") != std::string_view::npos) {
    return wrong("a field goes on in the next line");
  }
  const auto hosts = header.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && header.version() == 11)) return wrong("one Host is needed");
  if (!IsHost(value(http::field::host))) return wrong("Host is none");
  const auto lengths = header.count(http::field::content_length);
  if (lengths > 1 || (lengths == 1 && !IsCount(value(http::field::content_length)))) {
    return wrong("Content-Length must be one number");
  }
  const auto codings = header.count(http::field::transfer_encoding);
  if (codings == 0) return std::nullopt;
  if (header.version() != 11) return wrong("Transfer-Encoding needs version 1.1");
  if (lengths > 0) return wrong("Transfer-Encoding and Content-Length exclude each other");
  if (codings == 1 && boost::beast::iequals(header[http::field::transfer_encoding], "chunked")) return std::nullopt;
  return FramingError{501, "Transfer-Encoding: only chunked is supported"};
}

}  // namespace moestro::router
