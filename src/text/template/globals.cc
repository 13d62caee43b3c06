#include <array>
#include <ctime>
#include <string>

#include "text/template/buffer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

Value rangeFunction(Runtime& rt, const Function&, CallArgs& args) {
  const BoundArgs a(args, "range", {"start", "stop", "step"}, 1);
  const int64_t start = a[1] == nullptr ? 0 : a.integerOr(0, 0);
  const int64_t stop = a[1] == nullptr ? a.integerOr(0, 0) : a.integerOr(1, 0);
  const int64_t step = a.integerOr(2, 1);
  if (step == 0) raise("range() arg 3 must not be zero");
  // 128-bit arithmetic can't overflow here.
  const __int128 span = static_cast<__int128>(stop) - start;
  const __int128 count = (step > 0) == (span > 0) && span != 0 ? (span + step + (step > 0 ? -1 : 1)) / step : 0;
  if (count > rt.limits().max_range) {
    raise("Range too big. A template may make ranges of at most {} items", rt.limits().max_range);
  }
  return Sequence::makeRange(rt, start, stop, step, static_cast<size_t>(count));
}

// Implements dict(mapping or pairs, **names).
Dict* makeDict(Runtime& rt, const CallArgs& args) {
  if (args.positional.size() > 1) raise("dict expected at most 1 argument, got {}", args.positional.size());
  Dict* dict = nullptr;
  if (args.positional.empty()) {
    dict = Dict::make(rt, args.named.size());
  } else if (const Value& from = args.positional[0]; from.isDict()) {
    dict = Dict::copy(rt, from.dict());
  } else {
    requireDefined(from);
    dict = Dict::make(rt);
    Items items(rt, from);
    for (Value pair; items.next(pair);) {
      if (!pair.isSequence() || pair.sequence().size() != 2) raise("dict() needs pairs");
      dict->set(rt, pair.sequence().at(0), pair.sequence().at(1));
    }
  }
  for (const auto& [name, value] : args.named) dict->set(rt, Value::ofText(name), value);
  return dict;
}

Value dictFunction(Runtime& rt, const Function&, CallArgs& args) { return Value(makeDict(rt, args)); }

Value namespaceFunction(Runtime& rt, const Function&, CallArgs& args) {
  Dict* const made = makeDict(rt, args);
  for (const auto& entry : made->entries()) {
    if (entry.key.isString() && entry.key.string().starts_with('_'))
      raise("a namespace's names may not begin with an underscore");
  }
  made->becomeNamespace();
  return Value(made);
}

// Makes a function that returns an empty text at its first call and then the separator.
Value joinerFunction(Runtime& rt, const Function&, CallArgs& args) {
  const std::span<Value> captures = rt.newValues(1);
  const BoundArgs a(args, "joiner", {"sep"});
  captures[0] = a[0] != nullptr ? *a[0] : Value::ofText(", ");
  return Function::make(
      rt, "joiner",
      [](Runtime&, const Function& self, CallArgs&) {
        return self.counter()++ == 0 ? Value::ofText("") : self.captures()[0];
      },
      captures, rt.objects().make<uint64_t>(0));
}

// The captures of a cycler's functions are the cycler object and then its items.
Value turnCycler(Runtime& rt, const Function& self, bool next) {
  const std::span<const Value> items = self.captures().subspan(1);
  const Value before = items[self.counter()];
  self.counter() = next ? (self.counter() + 1) % items.size() : 0;
  self.captures()[0].dict().set(rt, Value::ofText("current"), items[self.counter()]);
  return next ? before : Value();
}

// Makes an object with next(), reset() and current.
Value cyclerFunction(Runtime& rt, const Function&, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) raise("at least one item has to be provided");
  Dict* const object = Dict::makeNamespace(rt);
  ValueBuffer gathered(rt);
  gathered.push(Value(object));
  gathered.append(args.positional);
  const std::span<const Value> captures = gathered.finish();
  uint64_t* const position = rt.objects().make<uint64_t>(0);
  const auto next = [](Runtime& runtime, const Function& self, CallArgs&) { return turnCycler(runtime, self, true); };
  const auto reset = [](Runtime& runtime, const Function& self, CallArgs&) { return turnCycler(runtime, self, false); };
  object->set(rt, Value::ofText("current"), args.positional[0]);
  object->set(rt, Value::ofText("next"), Function::make(rt, "next", next, captures, position));
  object->set(rt, Value::ofText("reset"), Function::make(rt, "reset", reset, captures, position));
  return Value(object);
}

Value raiseFunction(Runtime& rt, const Function&, CallArgs& args) {
  // The message becomes one line of an error response, so the text that a template puts into it is cut.
  constexpr size_t kMaxMessageBytes = 1024;
  const BoundArgs a(args, "raise_exception", {"message"}, 1);
  std::string_view text = str(rt, *a[0]).string();
  const bool cut = text.size() > kMaxMessageBytes;
  if (cut) text = text.substr(0, kMaxMessageBytes);
  while (cut && !text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.remove_suffix(1);
  if (cut && !text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.remove_suffix(1);
  std::string message(text);
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  throw TemplateError(cut ? message + "..." : message);
}

Value strftimeFunction(Runtime& rt, const Function&, CallArgs& args) {
  const std::string_view format = BoundArgs(args, "strftime_now", {"format"}, 1).textOr(0, "");
  if (format.size() > 256) raise("strftime_now: a format of more than 256 bytes");
  const std::time_t now = rt.now();
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  rt.charge(sizeof buffer);
  // The leading space distinguishes an empty result from one that didn't fit.
  const size_t size = std::strftime(buffer, sizeof buffer, fmt::format(" {}", format).c_str(), &local);
  if (size == 0) raise("strftime_now: the result is too long");
  return rt.text(toValidUtf8(std::string_view(buffer, size).substr(1)));
}
}  // namespace

std::span<const Function> globalFunctions() {
  static constexpr std::array kFunctions = {
      Function("range", rangeFunction),          Function("dict", dictFunction),
      Function("namespace", namespaceFunction),  Function("joiner", joinerFunction),
      Function("cycler", cyclerFunction),        Function("raise_exception", raiseFunction),
      Function("strftime_now", strftimeFunction)};
  return kFunctions;
}

}  // namespace chorus::tmpl
