// The files of the page that the router serves, compiled in: one binary is all it needs.
#pragma once

#include <span>
#include <string_view>

namespace moestro::router {

struct PageFile {
  std::string_view name;  // "main.js"
  std::string_view content_type;
  std::string_view body;
};

std::span<const PageFile> PageFiles();

}  // namespace moestro::router
