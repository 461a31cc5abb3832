// Flags that take one of a few words, each of which represents an enum value.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "common/process/flags.h"

namespace moestro {

template <typename Value>
struct Choice {
  const char* word;
  Value value;
};

// REQUIRES: one of the choices has that value.
template <typename Value, size_t kCount>
const char* WordOf(const std::array<Choice<Value>, kCount>& choices, Value value) {
  size_t i = 0;
  while (choices[i].value != value) ++i;
  return choices[i].word;
}

// Adds a flag that takes one of `words`; `chosen` is the default. `choose` receives the index of the given word. Any
// other word is an error: "--flag word: use a, b or c".
Flag AddWords(FlagSet& flags, const std::string& flag, const std::vector<std::string>& words, const std::string& chosen,
              std::function<void(size_t index)> choose, const std::string& help);

// Adds a flag that sets `value`, which must outlive the flags and holds the default.
template <typename Value, size_t kCount>
Flag AddChoice(FlagSet& flags, const std::string& flag, const std::array<Choice<Value>, kCount>& choices, Value& value,
               const std::string& help) {
  std::vector<std::string> words;
  for (const Choice<Value>& choice : choices) words.push_back(choice.word);
  return AddWords(
      flags, flag, words, WordOf(choices, value), [&](size_t index) { value = choices[index].value; }, help);
}

}  // namespace moestro
