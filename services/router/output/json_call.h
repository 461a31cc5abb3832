// Reads one call that a model writes as a JSON object, and passes its arguments on while they come.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "services/router/output/markers.h"
#include "services/router/output/output_writer.h"

namespace moestro::router {

// Follows one JSON value through a text that comes in pieces, to find its end. It checks brackets and the characters
// outside strings, and no more: line breaks in strings, which models write, are let through.
class JsonValueScanner {
 public:
  enum class State { kInside, kComplete, kBroken };

  size_t Scan(std::string_view text);  // how many of the bytes belong to the value
  State state() const { return state_; }

 private:
  State state_ = State::kInside;
  std::string open_;  // brackets
  bool began_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
};

// {"name": string, "arguments" or "parameters": object or its JSON text}, and optionally "id" and "type", which are
// ignored. Keys may come in any order. Where the name comes first, arguments stream.
class JsonCallReader {
 public:
  // `needs_arguments`: an object without arguments is no call.
  explicit JsonCallReader(bool needs_arguments) : needs_arguments_(needs_arguments) {}

  enum class Result { kMore, kCall, kBroken };
  // Reads on. kBroken: the pending text belongs to no call, and neither does raw() unless announced().
  Result Read(PendingText& text, OutputWriter& out);

  bool announced() const { return announced_; }
  const std::string& raw() const { return raw_; }  // what was read before the call was announced

 private:
  enum class Phase { kOpen, kFirstKey, kLaterKey, kInKey, kColon, kValue, kInValue, kNext };
  enum class Role { kName, kArguments, kIgnored };

  std::string_view Use(PendingText& text, size_t bytes);
  Result Structure(PendingText& text, OutputWriter& out);
  Result BeginValue(char first, OutputWriter& out);
  Result ScanKey(PendingText& text);
  Result ScanValue(PendingText& text, OutputWriter& out);
  Result EndValue();
  Result EndObject(OutputWriter& out);
  void Announce(OutputWriter& out);

  const bool needs_arguments_;
  Phase phase_ = Phase::kOpen;
  JsonValueScanner scanner_;  // of the key or the value
  std::string key_;           // with its quotes
  Role role_ = Role::kIgnored;
  std::string value_;
  std::string name_;
  std::string arguments_;  // that came before the name, or as text
  bool has_arguments_ = false;
  bool announced_ = false;
  bool streams_ = false;  // the value goes out while it comes
  std::string raw_;
};

}  // namespace moestro::router
