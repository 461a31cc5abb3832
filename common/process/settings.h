// The settings of a role: which value each of its flags has in effect, and where that comes from.
#pragma once

#include <string>
#include <vector>

#include "common/base/mutex.h"

namespace moestro {

struct Setting {
  enum class Origin {
    kSet,       // by somebody
    kMeasured,  // by this process, at its start
    kDerived,   // from the machine, the model, or what was measured
    kConstant,
  };
  std::string name;   // of the flag, without dashes: the key of a settings file
  std::string value;  // as on the command line
  Origin origin = Origin::kConstant;
  // Set: "command line", or FILE:LINE. Measured: what was. Derived: the formula with its numbers. Constant: its reason.
  std::string detail;
};

// "set", "measured", "derived", "constant".
const char* WordOf(Setting::Origin origin);

// Thread-safe.
class Settings {
 public:
  void Assign(std::vector<Setting> settings);
  // A value that the role has found itself, for a flag that leaves the choice to it. What was set before, if anything,
  // stays in the detail.
  void Measure(const std::string& name, const std::string& value, const std::string& what);
  void Derive(const std::string& name, const std::string& value, const std::string& formula);

  std::vector<Setting> List() const;

 private:
  void Replace(const Setting& found);

  mutable Mutex mutex_;
  std::vector<Setting> settings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro
