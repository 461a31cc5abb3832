// The text of a JSON object that is written member by member.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::router {

class ObjectText {
 public:
  // `json`: the text of the value. A name that comes again keeps its place and gets the later value: so readers of JSON
  // understand two members with one name, and a reader that is strict gets one.
  void Set(const std::string& name, std::string json);
  bool Has(const std::string& name) const { return places_.contains(name); }
  std::string Text() const;  // {"name": value, ...}

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::map<std::string, size_t> places_;  // in members_, by name
};

std::string QuotedJson(std::string_view text);
// Whether all of the text is JSON. The library alone takes a NUL for its end.
bool IsJson(std::string_view text);

}  // namespace moestro::router
