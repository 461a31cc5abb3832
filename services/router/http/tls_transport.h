// A byte stream in TLS.
#pragma once

#include <openssl/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 needs it, and does not include it

#include "services/router/http/transport.h"

namespace moestro::router {

// `context`: the server's certificate, and whether clients need one. `to_plain_http`: makes what a client gets that
// does not speak TLS but HTTP; what it refers to must outlive the transport.
std::unique_ptr<Transport> MakeTlsTransport(boost::asio::ip::tcp::socket socket,
                                            const std::shared_ptr<SSL_CTX>& context,
                                            std::function<std::string()> to_plain_http);

}  // namespace moestro::router
