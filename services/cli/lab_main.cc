// moestro-lab: the commands of `moestro` that no running node needs.
#include "services/cli/program.h"

int main(int argc, char** argv) {
  using namespace moestro::cli;
  return RunProgram(argc, argv, "moestro: measure this machine, plan and simulate others, make models.", "",
                    {AddMakeModelCommand, AddBenchCommand, AddBenchModelCommand, AddRoutingCommand, AddPlanCommand,
                     AddSimulateCommand, AddPaperCommand});
}
