// Runs the chorus program as a user does and captures its output.
#pragma once

#include <string>
#include <vector>

namespace chorus::test {

struct CommandResult {
  int status = 0;  // exit status, or 128 plus the signal that ended it
  std::string out;
  std::string errors;  // standard error
};

// arguments: those after the program's name; no shell is involved. standard_output: a file that receives the standard
// output instead of the result. directory: the working directory; empty: that of the test.
CommandResult runChorus(const std::vector<std::string>& arguments, const std::string& standard_output = "",
                        const std::string& directory = "");

}  // namespace chorus::test
