#include "text/template/from_json.h"

#include "base/exact_json.h"

namespace chorus::tmpl {
namespace {

// A JSON value raises the limits like this many bytes of text, so that there is room for the shortest ones, "[]," and
// "0,".
constexpr size_t kNodeBytes = 4;
}  // namespace

Value JsonReader::readText(std::string_view text) {
  rt_.allowForInput(text.size());
  return rt_.validText(text);
}

Value JsonReader::readArray(const OrderedJson& json) {
  rt_.checkStack();
  const std::span<Value> items = rt_.newValues(json.size());
  size_t i = 0;
  for (const auto& item : json) items[i++] = read(item);
  return Sequence::make(rt_, Sequence::Flavor::kList, items);
}

Value JsonReader::readObject(const OrderedJson& json) {
  rt_.checkStack();
  // Raises the limits for all keys before their values are read.
  rt_.allowForInput(json.size() * kNodeBytes);
  Dict* const dict = Dict::make(rt_, json.size());
  for (auto it = json.begin(); it != json.end(); ++it) dict->set(rt_, readText(it.key()), read(it.value()));
  return Value(dict);
}

Value JsonReader::read(const OrderedJson& json) {
  rt_.allowForInput(kNodeBytes);
  rt_.charge(sizeof(OrderedJson));
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) {
        return Value::wideInteger(rt_.text(std::to_string(json.get<uint64_t>())).string());
      }
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::binary: {
      const std::string_view digits = wideIntegerDigits(json).value_or("");
      rt_.allowForInput(digits.size());
      rt_.charge(digits.size());
      return Value::wideInteger(digits);
    }
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return readText(&json == replaced_ ? replacement_ : std::string_view(json.get_ref<const std::string&>()));
    case OrderedJson::value_t::array:
      rt_.allowForInput(json.size() * kNodeBytes);
      return readArray(json);
    case OrderedJson::value_t::object:
      return readObject(json);
    default:
      return Value();
  }
}

Value JsonReader::readMessage(const OrderedJson& message) {
  const OrderedJson* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = message.find(name);
    if (it == message.end() || it->is_null()) continue;
    reasoning = &*it;
    break;
  }
  if (reasoning == nullptr) return read(message);
  rt_.allowForInput((message.size() + 2) * kNodeBytes);
  Dict* const dict = Dict::make(rt_, message.size() + 2);
  const Value named = read(*reasoning);
  dict->set(rt_, Value::ofText("thinking"), named);
  for (auto it = message.begin(); it != message.end(); ++it) dict->set(rt_, readText(it.key()), read(it.value()));
  dict->set(rt_, Value::ofText("reasoning_content"), named);
  return Value(dict);
}

Value JsonReader::readMessages(const OrderedJson& messages) {
  rt_.allowForInput(messages.size() * kNodeBytes);
  const std::span<Value> items = rt_.newValues(messages.size());
  size_t i = 0;
  for (const auto& message : messages) items[i++] = readMessage(message);
  return Sequence::make(rt_, Sequence::Flavor::kList, items);
}

}  // namespace chorus::tmpl
