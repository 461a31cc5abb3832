// Commands that a running node does not need: they measure, plan, simulate and make models. They are a program of their
// own, moestro-lab, so that a node is built without them. `moestro COMMAND` starts it.
#pragma once

#include <string_view>

namespace moestro::cli {

inline constexpr std::string_view kLabCommands[] = {"make-model", "bench",    "bench-model", "routing",
                                                    "plan",       "simulate", "paper"};

// Becomes moestro-lab, beside this program, with the same arguments. Returns an exit code if it is not there.
int RunLab(char** argv);

}  // namespace moestro::cli
