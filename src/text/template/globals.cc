#include <ctime>

#include "text/template/runtime.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

Value rangeFunction(Runtime& rt, CallArgs& args) {
  const BoundArgs a(args, "range", {"start", "stop", "step"}, 1);
  auto range = std::make_shared<Sequence>();
  range->flavor = Sequence::Flavor::kRange;
  range->start = a[1] == nullptr ? 0 : a.integerOr(0, 0);
  range->stop = a[1] == nullptr ? a.integerOr(0, 0) : a.integerOr(1, 0);
  range->step = a.integerOr(2, 1);
  if (range->step == 0) raise("range() arg 3 must not be zero");
  // In 128 bits nothing here can overflow.
  const __int128 span = static_cast<__int128>(range->stop) - range->start, step = range->step;
  const __int128 count = (step > 0) == (span > 0) && span != 0 ? (span + step + (step > 0 ? -1 : 1)) / step : 0;
  if (count > rt.limits().max_range) {
    raise("Range too big. A template may make ranges of at most {} items", rt.limits().max_range);
  }
  rt.step(static_cast<int64_t>(count));
  rt.charge(static_cast<size_t>(count) * sizeof(Value));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) range->items.emplace_back(range->start + i * range->step);
  return Value(std::move(range));
}

// dict(mapping or pairs, **names)
std::shared_ptr<Dict> makeDict(Runtime& rt, const CallArgs& args) {
  auto dict = std::make_shared<Dict>();
  if (args.positional.size() > 1) raise("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    requireDefined(from);
    if (from.isDict()) {
      *dict = *from.dict();
      rt.charge(dict->entries.size() * 2 * sizeof(Value));
    } else {
      for (const Value& pair : itemsOf(rt, from)) {
        if (!pair.isSequence() || pair.sequence().items.size() != 2) raise("dict() needs pairs");
        dict->set(pair.sequence().items[0], pair.sequence().items[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) dict->set(Value(name), value);
  return dict;
}

Value namespaceFunction(Runtime& rt, CallArgs& args) {
  auto made = makeDict(rt, args);
  for (const auto& entry : made->entries) {
    if (entry.first.isString() && entry.first.string().starts_with('_'))
      raise("a namespace's names may not begin with an underscore");
  }
  made->is_namespace = true;
  rt.charge(256);
  rt.keepNamespace(made);
  return Value(std::move(made));
}

// Nothing at its first call, then the separator.
Value joinerFunction(Runtime& rt, CallArgs& args) {
  const std::string separator = BoundArgs(args, "joiner", {"sep"}).textOr(0, ", ");
  rt.charge(256);
  return makeFunction("joiner", [separator, used = std::make_shared<bool>(false)](Runtime& runtime, CallArgs&) {
    return Value(std::exchange(*used, true) ? runtime.charged(separator) : std::string());
  });
}

// An object with next(), reset() and current.
Value cyclerFunction(Runtime& rt, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) raise("at least one item has to be provided");
  auto object = std::make_shared<Dict>();
  object->is_namespace = true;
  rt.charge(512 + args.positional.size() * sizeof(Value));
  rt.keepNamespace(object);
  const auto at = std::make_shared<size_t>(0);
  const auto turn = [at, items = args.positional, self = std::weak_ptr<Dict>(object)](bool next) {
    const Value before = items[*at];
    *at = next ? (*at + 1) % items.size() : 0;
    if (const auto dict = self.lock()) dict->set(Value("current"), items[*at]);
    return next ? before : Value();
  };
  object->set(Value("current"), args.positional[0]);
  object->set(Value("next"), makeFunction("next", [turn](Runtime&, CallArgs&) { return turn(true); }));
  object->set(Value("reset"), makeFunction("reset", [turn](Runtime&, CallArgs&) { return turn(false); }));
  return Value(std::move(object));
}

Value raiseFunction(Runtime&, CallArgs& args) {
  const BoundArgs a(args, "raise_exception", {"message"}, 1);
  std::string message = str(*a[0]);
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  throw TemplateError(message);
}

Value strftimeFunction(Runtime& rt, CallArgs& args) {
  const std::string format = BoundArgs(args, "strftime_now", {"format"}, 1).textOr(0, "");
  if (format.size() > 256) raise("strftime_now: a format of more than 256 bytes");
  const std::time_t now = rt.now();
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  // A leading space tells an empty result from one that didn't fit.
  const size_t size = std::strftime(buffer, sizeof buffer, (" " + format).c_str(), &local);
  if (size == 0) raise("strftime_now: the result is too long");
  return Value(rt.charged(toValidUtf8(std::string_view(buffer, size).substr(1))));
}
}  // namespace

const std::map<std::string, Value>& globalFunctions() {
  static const std::map<std::string, Value> globals = {
      {"range", makeFunction("range", rangeFunction)},
      {"dict", makeFunction("dict", [](Runtime& rt, CallArgs& args) { return Value(makeDict(rt, args)); })},
      {"namespace", makeFunction("namespace", namespaceFunction)},
      {"joiner", makeFunction("joiner", joinerFunction)},
      {"cycler", makeFunction("cycler", cyclerFunction)},
      {"raise_exception", makeFunction("raise_exception", raiseFunction)},
      {"strftime_now", makeFunction("strftime_now", strftimeFunction)},
  };
  return globals;
}

}  // namespace chorus::tmpl
