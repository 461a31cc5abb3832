// Halves of characters in JSON.
#pragma once

#include <string>

namespace moestro::text {

// Writes \ufffd over each escape of a UTF-16 surrogate that has no other half: JavaScript cuts texts inside of an emoji
// and writes such escapes, which RFC 8259 allows and JSON libraries refuse. Everything else stays as it is, also what
// is no JSON.
void ReplaceLoneSurrogates(std::string& json);

}  // namespace moestro::text
