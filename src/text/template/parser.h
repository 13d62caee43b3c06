// Parses template text to its syntax tree: Jinja's grammar, without the statements that load other templates.
#pragma once

#include <string_view>

#include "text/template/ast.h"

namespace chorus {
class WorkMeter;
}

namespace chorus::tmpl {

// The arena holds the tree and a copy of the parts of the source that it needs. Throws TemplateSyntaxError, and what
// the meter throws.
Body parseTemplate(std::string_view source, Arena& arena, WorkMeter& meter);

}  // namespace chorus::tmpl
