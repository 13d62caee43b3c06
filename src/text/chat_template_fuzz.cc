// The bytes are a chat template, rendered over a fixed conversation.
// parses: src/text/chat_template.cc src/text/template
#include <cstdint>

#include "base/error.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  static const OrderedJson conversation = OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hello \u00e9\n"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
                 {"role": "tool", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})");
  try {
    ChatTemplateInput input;
    input.messages = conversation["messages"];
    input.tools = conversation["tools"];
    input.add_generation_prompt = true;
    input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    input.now = 0;
    ChatTemplate::compile({reinterpret_cast<const char*>(data), size}, "input")->render(input);
  } catch (const Error&) {
  }
  return 0;
}
