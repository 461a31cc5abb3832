// Flags of a program and of its commands. Only flags.cc includes the library behind them, whose headers take seconds of
// every source that includes them.
#pragma once

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/settings.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace moestro {

struct FlagNotes;

// A handle of one flag, valid as long as its program's flags. What it returns is the flag itself, for the next call.
// Checks apply to each value of a flag that takes several.
class Flag {
 public:
  Flag Required();
  // Number: int, int64_t, float or double. Both limits are allowed values.
  template <typename Number>
  Flag Range(Number least, Number most);
  Flag Positive();
  Flag NonNegative();
  Flag OneOf(std::vector<std::string> words);
  Flag AsBytes();  // a count of bytes, also with a unit: 8GB, 8GiB and 8g are the same
  Flag Needs(Flag other);
  Flag Excludes(Flag other);                          // and the other way round
  Flag FromEnvironment(const std::string& variable);  // used if the flag is not given
  Flag Delimiter(char delimiter);  // separates values in one argument; without it each value is an argument
  // What --help shows as the type of the value, or in place of type, default and everything else after the name.
  Flag TypeName(const std::string& name);
  Flag HelpText(const std::string& text);
  // Why the default is what it is: for people who ask for the settings in effect.
  Flag Because(const std::string& reason);

 private:
  friend class FlagSet;
  friend class ProgramFlags;
  Flag(CLI::Option* option, FlagNotes* notes) : option_(option), notes_(notes) {}

  CLI::Option* option_;
  FlagNotes* notes_;
};

// A handle of the flags of a program, of one of its commands, or of a group of flags; valid as long as the program's.
// Variables hold the defaults, which --help shows, and must live until all arguments are parsed.
class FlagSet {
 public:
  // `name`: "--flag", or "flag" for an argument that is recognised by its place, or both: "flag,--flag". Value is a
  // type listed at the end of flags.cc.
  template <typename Value>
  Flag Add(const std::string& name, Value& value, const std::string& help = "");
  // A flag without a value, which sets `given`.
  Flag AddSwitch(const std::string& name, bool& given, const std::string& help);
  // Passes the value on. An error of `take` ends the parse with its message. `shown`: the default that --help shows.
  Flag AddFunction(const std::string& name, const std::string& shown,
                   std::function<absl::Status(const std::string& value)> take, const std::string& help);
  // REQUIRES: this set or a group in it has the flag.
  Flag Find(const std::string& name);

  FlagSet AddCommand(const std::string& name, const std::string& description);
  // Flags that --help shows together, below `description`.
  FlagSet AddGroup(const std::string& name, const std::string& description);
  // Any other number of commands, or of flags of a group, is an error.
  void RequireCommands(int least, int most);
  void RequireFlags(int least, int most);
  void Footer(const std::string& text);  // the last paragraph of --help

  // Whether the arguments named this command.
  bool WasGiven() const;

 protected:
  FlagSet(CLI::App* app, FlagNotes* notes) : app_(app), notes_(notes) {}

  CLI::App* app_;
  FlagNotes* notes_;
};

// A key of a file of flags and what it sets, written as on the command line.
struct FlagSetting {
  std::string name;
  std::vector<std::string> values;
  int line = 0;  // of the file, from 1
};

// The flags of a program, with -h and --help. Thread-compatible.
class ProgramFlags : public FlagSet {
 public:
  explicit ProgramFlags(const std::string& description);  // the first paragraph of --help
  ~ProgramFlags();

  // --version prints `text`.
  void AddVersion(const std::string& text);
  // Adds a flag that names a file of other flags, which `read` reads. Arguments override it. An error of `read` ends
  // the parse with its message, and so does a key that is no flag.
  Flag AddFile(const std::string& name, const std::string& help,
               std::function<absl::StatusOr<std::vector<FlagSetting>>(std::istream& file)> read);
  // Flags of the program may also follow a command. Applies to commands added later.
  void AllowAfterCommands();

  // Sets the variables. Otherwise returns the exit code: kExitOk after it has printed help or version, kExitUsage after
  // it has printed an error on stderr.
  std::optional<int> Parse(int argc, char** argv);
  // The same without the program's name, and prints nothing: INVALID_ARGUMENT has the text of the error.
  absl::Status Parse(std::vector<std::string> arguments);
  std::string Help() const;
  // After Parse: every flag but --help and --version. One that was not given is a constant, with Because's reason.
  std::vector<Setting> Settings() const;

 private:
  const std::unique_ptr<FlagNotes> owned_notes_;
  const std::unique_ptr<CLI::App> owned_;
};

}  // namespace moestro
