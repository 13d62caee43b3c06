// chorus inspect --architectures: the models that this program supports.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "models/architecture.h"

namespace chorus {

// Returns a Markdown table with one row per architecture, in the order of the list. README.md contains the table of the
// built-in architectures; scripts/generated_pages.py writes it there.
std::string architecturesTable(std::span<const Architecture> architectures);
// Returns the facts of architecturesTable() as an array of JSON objects.
Json architecturesJson(std::span<const Architecture> architectures);

}  // namespace chorus
