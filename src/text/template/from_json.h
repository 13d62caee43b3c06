// Values from the JSON of a request.
#pragma once

#include "text/template/runtime.h"

namespace chorus::tmpl {

class JsonReader {
 public:
  // The input's JSON outlives the rendering: texts refer to it. What is read raises the limits of the rendering.
  explicit JsonReader(Runtime& rt) : rt_(rt) {}

  // Throws TemplateError on nesting beyond kMaxValueDepth.
  Value read(const OrderedJson& json);
  // A list of messages. A message's reasoning has had several names; templates find it under the one they know.
  Value readMessages(const OrderedJson& messages);
  // The string at this address is read as another one, which lives as long as the rendering.
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
