// The arguments of a call in answers that have them as JSON rather than as its text.
#pragma once

#include <string>

#include "services/router/http/frames.h"

namespace moestro::router {

// The object in a text of a model, for DumpWithArguments(). Arguments that the answer's end has cut off are no object:
// then {"partial_json": the text}.
OrderedJson ArgumentsObject(const std::string& arguments);

// Dump() of what may have such objects inside. Numbers in them keep the digits that the model wrote, however many.
std::string DumpWithArguments(const OrderedJson& json);

}  // namespace moestro::router
