// Whom the open connections belong to, so that no client takes them all.
#pragma once

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <string>

namespace moestro::router {

// What one client has at its disposal: an IPv4 address, or the first 64 bits of an IPv6 address. Empty: this machine,
// where a proxy may stand for everybody.
std::string NetworkOf(const boost::asio::ip::address& address);

// Of one network, of so many connections in all: a quarter.
inline size_t MostOfOneNetwork(size_t connections) { return std::max<size_t>(1, connections / 4); }

// Where keys are needed, whoever has shown none may not stay on the last of them: a sixteenth.
inline size_t ReserveForKeys(size_t connections) { return connections / 16; }

}  // namespace moestro::router
