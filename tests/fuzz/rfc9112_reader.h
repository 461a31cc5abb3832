// A strict reader of HTTP/1.x requests, written from RFC 9112 alone: the oracle of http_fuzz.cc.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::testing {

struct ReadRequest {
  std::string method, target, body;
};

// Reads one request after the other, and stops at the first that is malformed or not whole.
class Rfc9112Reader {
 public:
  static std::vector<ReadRequest> Read(std::string_view input) {
    Rfc9112Reader reader(input);
    std::vector<ReadRequest> requests;
    while (auto request = reader.Next()) requests.push_back(*std::move(request));
    return requests;
  }

 private:
  explicit Rfc9112Reader(std::string_view input) : rest_(input) {}

  static bool IsToken(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string::npos;
    });
  }
  static bool IsFieldValue(std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c == '\t' || (c >= ' ' && c != 127); });
  }

  // Up to the next CRLF, without it.
  std::optional<std::string_view> Line() {
    const size_t end = rest_.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 2);
    return line;
  }

  struct Fields {
    std::vector<std::string> hosts, lengths, codings;
  };
  std::optional<Fields> ReadFields() {
    Fields fields;
    while (true) {
      const auto line = Line();
      if (!line) return std::nullopt;
      if (line->empty()) return fields;
      const size_t colon = line->find(':');
      if (colon == std::string_view::npos || !IsToken(line->substr(0, colon))) return std::nullopt;
      std::string name(line->substr(0, colon));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      std::string_view value = line->substr(colon + 1);
      if (!IsFieldValue(value)) return std::nullopt;
      while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
      while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
      if (name == "host") fields.hosts.emplace_back(value);
      if (name == "content-length") fields.lengths.emplace_back(value);
      if (name == "transfer-encoding") fields.codings.emplace_back(value);
    }
  }

  // Hexadecimal digits, extensions after a semicolon.
  static std::optional<uint64_t> ChunkSize(std::string_view line) {
    size_t digits = 0;
    uint64_t size = 0;
    for (; digits < line.size() && std::isxdigit(static_cast<unsigned char>(line[digits])) != 0; ++digits) {
      if (size >> 60 != 0) return std::nullopt;
      const char c = line[digits];
      size = size * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits == 0 || !IsFieldValue(line)) return std::nullopt;
    std::string_view rest = line.substr(digits);
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
    if (!rest.empty() && rest.front() != ';') return std::nullopt;
    return size;
  }

  std::optional<std::string> Chunks() {
    std::string body;
    while (true) {
      const auto line = Line();
      const auto size = line ? ChunkSize(*line) : std::nullopt;
      if (!size) return std::nullopt;
      if (*size == 0) break;
      if (rest_.size() < *size + 2 || rest_.substr(*size, 2) != "\r\n") return std::nullopt;
      body += rest_.substr(0, *size);
      rest_.remove_prefix(*size + 2);
    }
    if (!ReadFields()) return std::nullopt;  // trailers
    return body;
  }

  std::optional<ReadRequest> Next() {
    auto line = Line();
    if (line && line->empty()) line = Line();  // one before the request line is ignored (2.2)
    if (!line) return std::nullopt;
    const size_t first = line->find(' '), last = line->rfind(' ');
    if (first == std::string_view::npos || first == last) return std::nullopt;
    ReadRequest request{std::string(line->substr(0, first)), std::string(line->substr(first + 1, last - first - 1)),
                        ""};
    const std::string_view version = line->substr(last + 1);
    if (!IsToken(request.method) || (version != "HTTP/1.1" && version != "HTTP/1.0")) return std::nullopt;
    if (!std::ranges::all_of(request.target, [](unsigned char c) { return c > ' ' && c != 127; })) return std::nullopt;
    const auto fields = ReadFields();
    if (!fields || fields->hosts.size() > 1 || fields->lengths.size() > 1) return std::nullopt;
    if (fields->hosts.empty() && version == "HTTP/1.1") return std::nullopt;
    if (!fields->codings.empty()) {
      std::string coding = fields->codings[0];
      std::ranges::transform(coding, coding.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (fields->codings.size() > 1 || coding != "chunked" || !fields->lengths.empty() || version == "HTTP/1.0") {
        return std::nullopt;
      }
      auto body = Chunks();
      if (!body) return std::nullopt;
      request.body = *std::move(body);
    } else if (!fields->lengths.empty()) {
      uint64_t length = 0;
      if (fields->lengths[0].empty()) return std::nullopt;
      for (const unsigned char c : fields->lengths[0]) {
        if (std::isdigit(c) == 0 || length > rest_.size()) return std::nullopt;
        length = length * 10 + (c - '0');
      }
      if (length > rest_.size()) return std::nullopt;
      request.body = rest_.substr(0, length);
      rest_.remove_prefix(length);
    }
    return request;
  }

  std::string_view rest_;
};

}  // namespace moestro::testing
