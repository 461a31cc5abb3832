// A grammar whose masks take long.
#pragma once

#include <string>

namespace moestro {

// Any text of printable bytes. Each of them is a class of its own, and `rules` positions stand inside `length` bytes of
// it at every place: a mask of single bytes takes some 95 x rules steps, and more the more places there are.
inline std::string DearGrammar(int length = 50, int rules = 3800) {
  std::string grammar = "root ::= x+ | \"\\x01\" lit\nx ::= ";
  for (int i = 0; i < rules; ++i) grammar += (i == 0 ? "r" : "|r") + std::to_string(i);
  grammar += "\nlit ::= ";
  for (char c = ' '; c <= '~'; ++c) {
    grammar += c == ' ' ? "" : "|";
    grammar += c == '"' || c == '\\' ? std::string("\"\\") + c + '"' : std::string("\"") + c + '"';
  }
  for (int i = 0; i < rules; ++i) {
    grammar += "\nr" + std::to_string(i) + " ::= [ -~]{" + std::to_string(length) + "}";
  }
  return grammar + "\n";
}

}  // namespace moestro
