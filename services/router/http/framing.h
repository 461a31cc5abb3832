// RFC 9112, strictly: a request that another reader of the same bytes could cut elsewhere is refused. Behind a proxy
// that reads it otherwise, its end would be a request of its own, of another client.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace moestro::router {

struct FramingError {
  int status = 400;  // 501: a coding that this server cannot undo
  std::string message;
};

// `bytes`: the header as it came, of which the parser only gives what they mean. Nullopt: nothing is wrong.
// The connection must end after an error.
std::optional<FramingError> CheckFraming(const boost::beast::http::header<true, boost::beast::http::fields>& header,
                                         std::string_view bytes);

// The same for what follows the last chunk of a body. `bytes` end with it, and begin anywhere before its first line.
std::optional<FramingError> CheckTrailer(std::string_view bytes);

}  // namespace moestro::router
