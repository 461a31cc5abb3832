// Every field that the requests of OpenAI's and Anthropic's clients have, and what becomes of it here. A field that
// changes the answer is honoured or refused by its name, never dropped. tests/integration/test_api_fields.py compares
// the tables with the clients' own types, and sends a wrong type for each field that is honoured.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/text/json/json.h"

namespace moestro::router {

enum class FieldUse {
  kHonoured,  // an endpoint reads it
  kNoEffect,  // accepted: it says who asks, how to bill or store, or gives a hint that does not change what is right
  kRefused,   // asks for what is not here
  kLeftOut,   // of elements' types: such elements stand beside those that are read, and the model does not see them
};

struct ApiField {
  const char* path;  // "messages[].name": a list's name ends in []. One row stands for what is inside of it, too,
                     // unless that has rows of its own
  FieldUse use;
  // Of a refused field: a JSON list of values that ask for nothing, alone or in a list; and what to do instead. An
  // empty text asks for nothing either: SDKs leave it where nothing was set. Of types that are left out: a list of
  // them, or "*" for all that the refusal of the same path does not list.
  const char* harmless = "[]";
  const char* remedy = "";
};

enum class Api { kChat, kCompletions, kResponses, kMessages };

std::span<const ApiField> FieldsOf(Api api);
// Those that clients of other servers send to any API, and that are refused where the API has none of the name.
std::span<const ApiField> FieldsOfOtherServers();

// Whether an element of this type is left out. `path`: of its type, "tools[].type".
bool IsLeftOut(Api api, std::string_view path, const std::string& type);

// UNIMPLEMENTED for a field that is refused: "messages[3].audio: ...". INVALID_ARGUMENT for an element on its path that
// is no object. Fields that no table has are accepted: clients of other servers send more.
void RefuseFields(Api api, text::JsonFields& fields);

}  // namespace moestro::router
