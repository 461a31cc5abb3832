#include "services/router/http/shares.h"

#include <algorithm>

namespace moestro::router {

namespace ip = boost::asio::ip;

std::string NetworkOf(const ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {  // to a listener for both
    return NetworkOf(ip::make_address_v4(ip::v4_mapped, address.to_v6()));
  }
  if (address.is_loopback()) return "";
  if (address.is_v4()) return address.to_string();
  ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return ip::address_v6(bytes).to_string() + "/64";
}

}  // namespace moestro::router
