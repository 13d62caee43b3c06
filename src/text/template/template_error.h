// Errors of chat templates.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace chorus::tmpl {

// An error in a running template; ChatTemplate::render adds the line.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

// An error of a template that doesn't parse; ChatTemplate::compile adds the name of the template.
struct TemplateSyntaxError {
  std::string message;
  int line;
};

}  // namespace chorus::tmpl
