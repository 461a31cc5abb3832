#include "common/process/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/process/process.h"

namespace moestro {

// What the library does not keep of the flags of a program.
struct FlagNotes {
  std::map<const CLI::Option*, std::string> reasons;
  std::map<const CLI::Option*, std::string> places;  // FILE:LINE of those that a file sets
};

namespace {

// Reads a file by a function.
class FileOfFlags : public CLI::ConfigTOML {
 public:
  using Reader = std::function<absl::StatusOr<std::vector<FlagSetting>>(std::istream& file)>;

  FileOfFlags(Reader read, const CLI::App& app, FlagNotes& notes) : read_(std::move(read)), app_(app), notes_(notes) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    absl::StatusOr<std::vector<FlagSetting>> settings = read_(input);
    if (!settings.ok()) throw CLI::ConfigError(std::string(settings.status().message()));
    std::vector<CLI::ConfigItem> found;
    for (FlagSetting& setting : *settings) {
      CLI::ConfigItem& item = found.emplace_back();
      item.name = std::move(setting.name);
      // The arguments have been read. What they set stays.
      const CLI::Option* option = app_.get_option_no_throw("--" + item.name);
      if (option != nullptr && option->count() == 0) {
        notes_.places[option] = absl::StrCat(app_.get_config_ptr()->as<std::string>(), ":", setting.line);
      }
      item.inputs = std::move(setting.values);
    }
    return found;
  }

 private:
  const Reader read_;
  const CLI::App& app_;
  FlagNotes& notes_;
};

// Comparisons with NaN are false, so that every range of the library holds it.
std::string RefuseNan(std::string& text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) && std::isnan(number) ? "Value " + text + " is no number" : "";
}

// Of a number: no NaN, and what `range` checks.
CLI::Option* CheckNumber(CLI::Option* option, const CLI::Validator& range) {
  return option->check(CLI::Validator(RefuseNan, ""))->check(range);
}

}  // namespace

Flag Flag::Required() { return Flag(option_->required(), notes_); }

template <typename Number>
Flag Flag::Range(Number least, Number most) {
  return Flag(CheckNumber(option_, CLI::Range(least, most)), notes_);
}

Flag Flag::Positive() { return Flag(CheckNumber(option_, CLI::PositiveNumber), notes_); }

Flag Flag::NonNegative() { return Flag(CheckNumber(option_, CLI::NonNegativeNumber), notes_); }

Flag Flag::OneOf(std::vector<std::string> words) {
  return Flag(option_->check(CLI::IsMember(std::move(words))), notes_);
}

Flag Flag::AsBytes() { return Flag(option_->transform(CLI::AsSizeValue(/*kb_is_1000=*/false)), notes_); }

Flag Flag::Needs(Flag other) { return Flag(option_->needs(other.option_), notes_); }

Flag Flag::Excludes(Flag other) { return Flag(option_->excludes(other.option_), notes_); }

Flag Flag::FromEnvironment(const std::string& variable) { return Flag(option_->envname(variable), notes_); }

Flag Flag::Delimiter(char delimiter) { return Flag(option_->delimiter(delimiter), notes_); }

Flag Flag::TypeName(const std::string& name) { return Flag(option_->type_name(name), notes_); }

Flag Flag::HelpText(const std::string& text) { return Flag(option_->option_text(text), notes_); }

Flag Flag::Because(const std::string& reason) {
  notes_->reasons[option_] = reason;
  return *this;
}

template <typename Value>
Flag FlagSet::Add(const std::string& name, Value& value, const std::string& help) {
  return Flag(app_->add_option(name, value, help), notes_);
}

Flag FlagSet::AddSwitch(const std::string& name, bool& given, const std::string& help) {
  return Flag(app_->add_flag(name, given, help), notes_);
}

Flag FlagSet::AddFunction(const std::string& name, const std::string& shown,
                          std::function<absl::Status(const std::string& value)> take, const std::string& help) {
  const auto take_or_throw = [take = std::move(take)](const std::string& value) {
    const absl::Status status = take(value);
    if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
  };
  return Flag(app_->add_option_function<std::string>(name, take_or_throw, help)->default_str(shown), notes_);
}

Flag FlagSet::Find(const std::string& name) { return Flag(app_->get_option(name), notes_); }

FlagSet FlagSet::AddCommand(const std::string& name, const std::string& description) {
  return FlagSet(app_->add_subcommand(name, description), notes_);
}

FlagSet FlagSet::AddGroup(const std::string& name, const std::string& description) {
  return FlagSet(app_->add_option_group(name, description), notes_);
}

void FlagSet::RequireCommands(int least, int most) {
  app_->require_subcommand(static_cast<size_t>(least), static_cast<size_t>(most));
}

void FlagSet::RequireFlags(int least, int most) {
  app_->require_option(static_cast<size_t>(least), static_cast<size_t>(most));
}

void FlagSet::Footer(const std::string& text) { app_->footer(text); }

bool FlagSet::WasGiven() const { return app_->parsed(); }

ProgramFlags::ProgramFlags(const std::string& description)
    : FlagSet(new CLI::App(description), new FlagNotes), owned_notes_(notes_), owned_(app_) {
  app_->option_defaults()->always_capture_default();
}

ProgramFlags::~ProgramFlags() = default;

void ProgramFlags::AddVersion(const std::string& text) { app_->set_version_flag("--version", text); }

Flag ProgramFlags::AddFile(const std::string& name, const std::string& help, FileOfFlags::Reader read) {
  CLI::Option* option = app_->set_config(name, "", help);
  app_->config_formatter(std::make_shared<FileOfFlags>(std::move(read), *app_, *notes_));
  app_->allow_config_extras(CLI::config_extras_mode::error);
  return Flag(option, notes_);
}

void ProgramFlags::AllowAfterCommands() { app_->fallthrough(); }

std::optional<int> ProgramFlags::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return std::nullopt;
}

absl::Status ProgramFlags::Parse(std::vector<std::string> arguments) {
  std::ranges::reverse(arguments);  // the order that the library requires
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

std::string ProgramFlags::Help() const { return app_->help(); }

std::vector<Setting> ProgramFlags::Settings() const {
  std::vector<Setting> settings;
  for (const CLI::Option* option : static_cast<const CLI::App*>(app_)->get_options()) {
    if (option == app_->get_help_ptr() || option == app_->get_version_ptr()) continue;
    Setting& setting = settings.emplace_back();
    setting.name = option->get_single_name();
    const bool is_switch = option->get_items_expected_max() == 0;
    if (option->count() > 0) {
      setting.origin = Setting::Origin::kSet;
      setting.value = is_switch ? "true" : absl::StrJoin(option->results(), ",");
      const auto place = notes_->places.find(option);
      setting.detail = place != notes_->places.end() ? place->second : "command line";
    } else {
      setting.value = is_switch ? "false" : option->get_default_str();
      if (setting.value == "[]") setting.value.clear();  // the library's word for a list of none
      if (option->get_type_name() == "BOOLEAN") setting.value = setting.value == "1" ? "true" : "false";
      const auto reason = notes_->reasons.find(option);
      if (reason != notes_->reasons.end()) setting.detail = reason->second;
    }
  }
  return settings;
}

template Flag Flag::Range(int least, int most);
template Flag Flag::Range(int64_t least, int64_t most);
template Flag Flag::Range(float least, float most);
template Flag Flag::Range(double least, double most);

// The types of flags.
template Flag FlagSet::Add(const std::string&, bool&, const std::string&);
template Flag FlagSet::Add(const std::string&, int&, const std::string&);
template Flag FlagSet::Add(const std::string&, int64_t&, const std::string&);
template Flag FlagSet::Add(const std::string&, uint32_t&, const std::string&);
template Flag FlagSet::Add(const std::string&, uint64_t&, const std::string&);
template Flag FlagSet::Add(const std::string&, float&, const std::string&);
template Flag FlagSet::Add(const std::string&, double&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::string&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<int>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<int64_t>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<uint32_t>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<uint64_t>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<float>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::optional<std::string>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::vector<int>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::vector<int64_t>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::vector<uint64_t>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::vector<double>&, const std::string&);
template Flag FlagSet::Add(const std::string&, std::vector<std::string>&, const std::string&);

}  // namespace moestro
