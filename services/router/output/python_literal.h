// Objects and arrays that a model writes as Python does: {'a': 1, 'b': True, 'c': None}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro::router {

// JSON text of a dict whose keys are strings, a list or a tuple, with what JSON has inside. nullopt: the text is none,
// or has what JSON cannot say (sets, bytes, complex numbers, half of a surrogate pair), or nests deeper than 64.
// Numbers keep their digits.
std::optional<std::string> JsonOfPythonLiteral(std::string_view text);

}  // namespace moestro::router
