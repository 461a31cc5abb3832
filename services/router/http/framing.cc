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

FramingError Wrong(std::string_view what) { return {400, text::Concat("not HTTP/1.1: ", what)}; }

constexpr std::string_view kFolded = "a field goes on in the next line";

bool IsFolded(std::string_view line) { return line.starts_with(' ') || line.starts_with('\t'); }

// No field can be taken for it: a name is followed by a colon.
bool IsLastChunk(std::string_view line) {
  const size_t end = std::min(line.find_first_not_of('0'), line.size());
  return end > 0 && (end == line.size() || line[end] == ';' || IsFolded(line.substr(end)));
}

}  // namespace

std::optional<FramingError> CheckTrailer(std::string_view bytes) {
  constexpr std::string_view kLineEnd = "\r\n";
  if (bytes.ends_with(kLineEnd)) bytes.remove_suffix(kLineEnd.size());  // of the empty line at the end
  while (bytes.ends_with(kLineEnd)) {
    bytes.remove_suffix(kLineEnd.size());
    const size_t before = bytes.rfind(kLineEnd);
    const std::string_view line = before == std::string_view::npos ? bytes : bytes.substr(before + kLineEnd.size());
    if (IsLastChunk(line)) break;
    if (IsFolded(line)) return Wrong(kFolded);
    bytes.remove_suffix(line.size());
  }
  return std::nullopt;
}

std::optional<FramingError> CheckFraming(const http::header<true, http::fields>& header, std::string_view bytes) {
  const auto value = [&](http::field name) {
    const auto found = header[name];
    return std::string_view(found.data(), found.size());
  };
  if (header.version() != 10 && header.version() != 11) return Wrong("the version must be 1.0 or 1.1");
  if (bytes.find("\r\n ") != std::string_view::npos || bytes.find("\r\n\t") != std::string_view::npos) {
    return Wrong(kFolded);
  }
  const auto hosts = header.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && header.version() == 11)) return Wrong("one Host is needed");
  if (!IsHost(value(http::field::host))) return Wrong("Host is none");
  const auto lengths = header.count(http::field::content_length);
  if (lengths > 1 || (lengths == 1 && !IsCount(value(http::field::content_length)))) {
    return Wrong("Content-Length must be one number");
  }
  const auto codings = header.count(http::field::transfer_encoding);
  if (codings == 0) return std::nullopt;
  if (header.version() != 11) return Wrong("Transfer-Encoding needs version 1.1");
  if (lengths > 0) return Wrong("Transfer-Encoding and Content-Length exclude each other");
  if (codings == 1 && boost::beast::iequals(header[http::field::transfer_encoding], "chunked")) return std::nullopt;
  return FramingError{501, "Transfer-Encoding: only chunked is supported"};
}

}  // namespace moestro::router
