// Files that tests read. These are functions and not macros of the command line, so that the compiler cache can reuse
// the objects of tests in another checkout.
#pragma once

#include <filesystem>

namespace chorus::test {

// The root of the source tree from which the program was built.
std::filesystem::path sourceDir();

}  // namespace chorus::test
