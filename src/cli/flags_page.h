// docs/flags.md: tables of every flag and variable in Markdown.
#pragma once

#include <string>

#include "cli/flag_reference.h"

namespace chorus {

std::string flagsPage(const FlagReference& reference);

}  // namespace chorus
