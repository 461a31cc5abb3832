// moestro: the command line of a node.
#include <algorithm>
#include <string>

#include "services/cli/lab.h"
#include "services/cli/program.h"

int main(int argc, char** argv) {
  using namespace moestro::cli;
  if (argc > 1 && std::ranges::count(kLabCommands, argv[1]) > 0) return RunLab(argv);
  std::string footer = "In the program moestro-lab, started by the same names:";
  for (const std::string_view command : kLabCommands) (footer += ' ') += command;
  return RunProgram(argc, argv, "moestro: talk to a running node, and inspect checkpoints and shared memory.", footer,
                    {AddGenerateCommand, AddChatCommand, AddScoreCommand, AddBatchCommand, AddEvalCommand,
                     AddTextCommands, AddModelCommand, AddHealthCommand, AddStatusCommand, AddConfigCommand,
                     AddInspectCommand, AddSegmentsCommands, AddKeysCommands});
}
