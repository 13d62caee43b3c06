// Runs the chorus program as a user does and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace chorus::test {

struct CommandResult {
  int status = 0;  // exit status; 128 plus the signal when one ended it
  std::string out;
  std::string errors;  // what went to stderr
};

// arguments: after the program's name. No shell is involved. standard_output: a file in place of the one that is kept.
CommandResult runChorus(const std::vector<std::string>& arguments, const std::string& standard_output = "");

}  // namespace chorus::test
