// A temporary value.
#pragma once

#include <utility>

namespace moestro::text::jinja {

// Sets a variable during its lifetime, then restores it.
template <typename T>
class Scoped {
 public:
  Scoped(T* variable, T value) : variable_(*variable), saved_(std::exchange(*variable, value)) {}
  ~Scoped() { variable_ = saved_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T saved_;
};

}  // namespace moestro::text::jinja
