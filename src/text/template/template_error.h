// What goes wrong in a template.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace chorus::tmpl {

// In a running one; the renderer adds the line.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

// A template that doesn't parse; the compiler adds the name of the template.
struct TemplateSyntaxError {
  std::string message;
  int line;
};

}  // namespace chorus::tmpl
