// Template text to its syntax tree: Jinja's grammar, without the statements that load other templates.
#pragma once

#include <string_view>

#include "text/template/ast.h"

namespace chorus::tmpl {

// Throws TemplateSyntaxError.
Body parseTemplate(std::string_view source);

}  // namespace chorus::tmpl
