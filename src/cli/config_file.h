// The configuration file of a command: a YAML map whose keys are the names of the command's flags.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chorus {

class ConfigFile {
 public:
  ConfigFile() = default;  // no file
  // Reads the file and checks that every key is the name of a flag of `command`, without dashes (dashes and underscores
  // inside are the same), that no flag occurs twice, and that each value has the flag's type: a list for a flag that
  // may be given several times, else a single value. Throws Error, one line with file, line and key.
  ConfigFile(const CLI::App& command, std::string path);

  // Sets the options that have no value yet, which are those that neither the command line nor a variable has set.
  // Call it when `command` has been parsed. Throws Error with file, line and key for a value that the option refuses.
  void setMissing(CLI::App& command);

  // "FILE, line N" if setMissing() set this option; otherwise empty.
  std::string placeOf(const CLI::Option& option) const;
  // The message with each flag whose value came from the file replaced by its key and place.
  std::string withPlaces(std::string message) const;

 private:
  struct Entry {
    std::string key;  // as written
    int line = 0;     // from 1
    Json value;
    bool used = false;
  };

  std::string path_;
  std::map<const CLI::Option*, Entry> entries_;
};

}  // namespace chorus
