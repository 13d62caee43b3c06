// docs/chorus.1: the manual page of section 1, in the macros of man(7).
#pragma once

#include <string>

#include "cli/flag_reference.h"

namespace chorus {

std::string manPage(const FlagReference& reference);

}  // namespace chorus
