// Reads the JSON of a request as template values.
#pragma once

#include "text/template/runtime.h"

namespace chorus::tmpl {

class JsonReader {
 public:
  // The JSON must outlive the rendering, because texts refer to it. Reading raises the limits of the rendering.
  explicit JsonReader(Runtime& rt) : rt_(rt) {}

  // Throws TemplateError on nesting beyond kMaxValueDepth.
  Value read(const OrderedJson& json);
  // Reads a list of messages. Several names are in use for a message's reasoning ("reasoning_content", "thinking" and
  // "reasoning"); the result has it under the first two.
  Value readMessages(const OrderedJson& messages);
  // Makes read() return `by` for the string at this address. `by` must live as long as the rendering.
  void replace(const OrderedJson* string, std::string_view by) { replaced_ = string, replacement_ = by; }

 private:
  Value readArray(const OrderedJson& json);
  Value readObject(const OrderedJson& json);
  Value readMessage(const OrderedJson& message);
  Value readText(std::string_view text);

  Runtime& rt_;
  const OrderedJson* replaced_ = nullptr;
  std::string_view replacement_;
};

}  // namespace chorus::tmpl
