#include "common/process/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moestro {

const char* WordOf(Setting::Origin origin) {
  constexpr std::array<const char*, 4> kWords = {"set", "measured", "derived", "constant"};
  return kWords[static_cast<size_t>(origin)];
}

void Settings::Assign(std::vector<Setting> settings) {
  const MutexLock lock(mutex_);
  settings_ = std::move(settings);
}

void Settings::Measure(const std::string& name, const std::string& value, const std::string& what) {
  Replace({name, value, Setting::Origin::kMeasured, what});
}

void Settings::Derive(const std::string& name, const std::string& value, const std::string& formula) {
  Replace({name, value, Setting::Origin::kDerived, formula});
}

void Settings::Replace(const Setting& found) {
  const MutexLock lock(mutex_);
  const auto place = std::ranges::find(settings_, found.name, &Setting::name);
  if (place == settings_.end()) {  // of a role that no flags started
    settings_.push_back(found);
    return;
  }
  const Setting before = std::exchange(*place, found);
  if (before.origin == Setting::Origin::kSet) {
    absl::StrAppend(&place->detail, "; ", before.detail, " says ", before.value);
  }
}

std::vector<Setting> Settings::List() const {
  const MutexLock lock(mutex_);
  return settings_;
}

}  // namespace moestro
