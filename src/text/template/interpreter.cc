#include "text/template/interpreter.h"

#include <algorithm>

#include "text/unicode.h"

namespace chorus::tmpl {

Scope* Interpreter::inner(Scope& parent) {
  rt_.charge(sizeof(Scope));
  Scope* const scope = rt_.objects().make<Scope>();
  scope->parent = &parent;
  return scope;
}

std::string Interpreter::run(const Body& body) {
  for (const Function& function : globalFunctions()) {
    if (globals_.findHere(rt_, function.name()) == nullptr) define(function.name(), Value(&function));
  }
  TextBuffer out(rt_);
  exec(body, *inner(globals_), out);
  rt_.charge(out.size());
  rt_.memory().take(out.size());
  std::string rendered(out.view());
  rt_.memory().giveBack(out.size());
  return rendered;
}

void Interpreter::print(const Value& value, TextBuffer& out) { out.append(str(rt_, value).string()); }

Interpreter::Flow Interpreter::exec(const Body& body, Scope& scope, TextBuffer& out) {
  const Runtime::Deeper deeper(rt_);
  for (const Stmt& stmt : body) {
    rt_.step();
    line_ = stmt.line;
    if (const Flow flow = execOne(stmt, scope, out); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execOne(const Stmt& stmt, Scope& scope, TextBuffer& out) {
  switch (stmt.kind) {
    case StmtKind::kData:
      out.append(stmt.text);
      break;
    case StmtKind::kOutput:
      print(eval(*stmt.output, scope), out);
      break;
    case StmtKind::kIf:
      return execIf(stmt, scope, out);
    case StmtKind::kFor:
      return execFor(stmt, scope, out);
    case StmtKind::kSet:
      execSet(stmt, scope);
      break;
    case StmtKind::kMacro:
      scope.set(rt_, stmt.text, makeMacro(stmt, scope, stmt.text));
      break;
    case StmtKind::kCallBlock:
      execCallBlock(stmt, scope, out);
      break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kWith:
    case StmtKind::kScope:
      return execBlock(stmt, scope, out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::execSet(const Stmt& stmt, Scope& scope) {
  assign(stmt.parts->targets[0], eval(*stmt.parts->expressions[0], scope), scope);
}

Interpreter::Flow Interpreter::execIf(const Stmt& stmt, Scope& scope, TextBuffer& out) {
  const StmtParts& parts = *stmt.parts;
  for (size_t i = 0; i < parts.expressions.size(); ++i) {
    if (truthy(eval(*parts.expressions[i], scope))) return exec(parts.bodies[i], scope, out);
  }
  return stmt.has_else ? exec(parts.bodies.back(), scope, out) : Flow::kNormal;
}

Interpreter::Flow Interpreter::execFor(const Stmt& stmt, Scope& scope, TextBuffer& out) {
  return execLoop(stmt, eval(*stmt.parts->expressions[0], scope), 1, scope, out);
}

// Returns the items that the loop's filter accepts.
Value Interpreter::kept(const Stmt& stmt, const Value& iterable, Scope& scope) {
  ValueBuffer passed(rt_);
  Items items(rt_, iterable);
  Scope* test = inner(scope);
  for (Value item; items.next(item);) {
    if (test->captured) test = inner(scope);
    test->size = 0;
    assign(stmt.parts->targets[0], item, *test);
    if (truthy(eval(*stmt.parts->expressions[1], *test))) passed.push(item);
  }
  return Sequence::make(rt_, Sequence::Flavor::kList, passed.finish());
}

Interpreter::Flow Interpreter::execLoop(const Stmt& stmt, const Value& iterable, int64_t level, Scope& scope,
                                        TextBuffer& out) {
  const StmtParts& parts = *stmt.parts;
  const Value items = parts.expressions[1] != nullptr ? kept(stmt, iterable, scope) : sequenceOf(rt_, iterable);
  const size_t count = items.sequence().size();
  if (count == 0) return stmt.has_else ? exec(parts.bodies[1], *inner(scope), out) : Flow::kNormal;
  if (stmt.recursive) scope.capture();
  LoopState* const loop = LoopState::make(rt_, items, level, stmt.recursive ? &stmt : nullptr, &scope);
  Scope* body = inner(scope);
  bool completed = false;
  for (; loop->index() < count; loop->advance()) {
    rt_.step();
    // The scope of the body is reused unless something refers to it.
    if (body->captured) body = inner(scope);
    body->size = 0;
    body->set(rt_, "loop", Value(loop));
    assign(parts.targets[0], items.sequence().at(loop->index()), *body);
    const Flow flow = exec(parts.bodies[0], *body, out);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNormal;
  }
  // In Jinja, an iteration that continue or break ends does not count as one.
  return stmt.has_else && !completed ? exec(parts.bodies[1], *inner(scope), out) : Flow::kNormal;
}

// Executes the blocks whose body has its own scope.
Interpreter::Flow Interpreter::execBlock(const Stmt& stmt, Scope& scope, TextBuffer& out) {
  const StmtParts& parts = *stmt.parts;
  Scope& block = *inner(scope);
  if (stmt.kind == StmtKind::kWith) {
    for (size_t i = 0; i < parts.targets.size(); ++i) {
      assign(parts.targets[i], eval(*parts.expressions[i], scope), block);
    }
    return exec(parts.bodies[0], block, out);
  }
  if (stmt.kind == StmtKind::kScope) return exec(parts.bodies[0], block, out);
  TextBuffer text(rt_);
  const Flow flow = exec(parts.bodies[0], block, text);
  if (flow != Flow::kNormal) return flow;  // the text of the block is discarded
  const Value result = filtered(parts.expressions[0], text.text(), scope);
  if (stmt.kind == StmtKind::kSetBlock)
    assign(parts.targets[0], result, scope);
  else
    print(result, out);
  return Flow::kNormal;
}

Value Interpreter::filtered(const Expr* filters, const Value& text, Scope& scope) {
  if (filters == nullptr) return text;
  Scope& block = *inner(scope);
  block.set(rt_, kFilteredBlock, text);
  return str(rt_, eval(*filters, block));
}

void Interpreter::execCallBlock(const Stmt& stmt, Scope& scope, TextBuffer& out) {
  const Expr& expr = *stmt.parts->expressions[0];
  const Value callee = eval(*expr.operand(0), scope);
  CallArgs args = evalArguments(expr.arguments, scope);
  Buffer<NamedValue> named(rt_);
  named.append(args.named);
  named.push({"caller", makeMacro(stmt, scope, "caller")});
  args.named = named.finish();
  print(callValue(callee, args), out);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.is_tuple) return unpack(target, value, scope);
  if (target.attribute.empty()) return scope.set(rt_, target.name, value);
  const Value* object = scope.find(rt_, target.name);
  if (object == nullptr || object->kind() != Kind::kNamespace) raise("cannot assign attribute on non-namespace object");
  if (target.attribute.starts_with('_')) raise("a namespace's names may not begin with an underscore");
  object->dict().set(rt_, Value::ofText(target.attribute), value);
}

void Interpreter::unpack(const Target& target, const Value& value, Scope& scope) {
  rt_.checkStack();
  if (value.isUndefined() || (!value.isSequence() && !value.isString() && !value.isDict())) {
    requireDefined(value);
    raise("cannot unpack non-iterable {} object", typeName(value));
  }
  const Value items = sequenceOf(rt_, value);
  const size_t count = items.sequence().size();
  if (count != target.items.size()) {
    raise("{} values to unpack (expected {})", count < target.items.size() ? "not enough" : "too many",
          target.items.size());
  }
  for (size_t i = 0; i < count; ++i) assign(target.items[i], items.sequence().at(i), scope);
}

Value Interpreter::makeMacro(const Stmt& stmt, Scope& scope, std::string_view name) {
  scope.capture();
  const auto parameters = stmt.parts->parameters;
  const std::span<Value> names = rt_.newValues(parameters.size());
  for (size_t i = 0; i < names.size(); ++i) names[i] = Value::ofText(parameters[i].name);
  return Function::makeMacro(rt_, name, callMacro, &stmt, &scope, names);
}

Value Interpreter::callMacro(Runtime& rt, const Function& self, CallArgs& args) {
  return rt.interpreter->runMacro(self, args);
}

Value Interpreter::runMacro(const Function& macro, CallArgs& args) {
  const Stmt& stmt = *static_cast<const Stmt*>(macro.code());
  const int line = line_;
  Scope& scope = *inner(*macro.scope());
  bindArguments(macro, args, scope);
  TextBuffer out(rt_);
  exec(stmt.parts->bodies[0], scope, out);
  line_ = line;
  return out.text();
}

void Interpreter::bindArguments(const Function& macro, CallArgs& args, Scope& scope) {
  const Stmt& stmt = *static_cast<const Stmt*>(macro.code());
  const std::span<const Parameter> parameters = stmt.parts->parameters;
  const size_t count = parameters.size();
  Dict* const extra = stmt.uses_kwargs ? Dict::make(rt_) : nullptr;
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    scope.set(rt_, parameters[i].name, args.positional[i]);
  }
  for (const auto& [key, value] : args.named) {
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&, &name = key](const Parameter& p) { return rt_.sameName(p.name, name); });
    if (known) {
      if (scope.findHere(rt_, key) != nullptr)
        raise("macro '{}' got multiple values for argument '{}'", printable(macro.name()), printable(key));
      scope.set(rt_, key, value);
    } else if (key == "caller" && stmt.uses_caller) {
      scope.set(rt_, key, value);
    } else if (extra != nullptr) {
      extra->set(rt_, Value::ofText(key), value);
    } else {
      raise("macro '{}' takes no keyword argument '{}'", printable(macro.name()), printable(key));
    }
  }
  if (args.positional.size() > count && !stmt.uses_varargs) {
    raise("macro '{}' takes not more than {} argument(s)", printable(macro.name()), count);
  }
  for (const Parameter& parameter : parameters) {
    if (scope.findHere(rt_, parameter.name) != nullptr) continue;
    scope.set(rt_, parameter.name,
              parameter.fallback != nullptr ? eval(*parameter.fallback, scope)
                                            : Value::undefined(Hint::kParameter, parameter.name));
  }
  if (stmt.uses_varargs) {
    scope.set(rt_, "varargs",
              Sequence::make(rt_, Sequence::Flavor::kTuple,
                             args.positional.subspan(std::min(count, args.positional.size()))));
  }
  if (extra != nullptr) scope.set(rt_, "kwargs", Value(extra));
  if (stmt.uses_caller && scope.findHere(rt_, "caller") == nullptr) {
    scope.set(rt_, "caller", Value::undefined(Hint::kText, "No caller defined"));
  }
}

Value Interpreter::callLoop(LoopState& loop, CallArgs& args) {
  const BoundArgs a(args, "loop", {"iterable"}, 1);
  if (loop.code() == nullptr) raise("The loop must have the 'recursive' marker to be called recursively.");
  const Runtime::Deeper deeper(rt_);
  const int line = line_;
  TextBuffer text(rt_);
  execLoop(*static_cast<const Stmt*>(loop.code()), *a[0], loop.level() + 1, *loop.scope(), text);
  line_ = line;
  return text.text();
}

Value Interpreter::callValue(const Value& callee, CallArgs& args) {
  return callee.kind() == Kind::kLoop ? callLoop(callee.loop(), args) : call(rt_, callee, args);
}

Value Interpreter::eval(const Expr& expr, Scope& scope) {
  const Runtime::Deeper deeper(rt_);
  rt_.step();
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return evalName(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return evalCollection(expr, scope);
    case ExprKind::kAttribute:
      return attributeOf(rt_, eval(*expr.operand(0), scope), expr.name());
    case ExprKind::kSubscript:
      return evalSubscript(expr, scope);
    case ExprKind::kSlice:
      raise("a slice can't be combined with other subscripts");
    case ExprKind::kCall:
      return evalCall(expr, scope);
    case ExprKind::kFilter:
      return evalFilter(expr, scope);
    case ExprKind::kTest:
      return evalTest(expr, scope);
    case ExprKind::kUnary:
      return unaryOperation(rt_, expr.op, eval(*expr.operand(0), scope));
    case ExprKind::kNot:
      return Value(!truthy(eval(*expr.operand(0), scope)));
    case ExprKind::kAnd: {
      const Value left = eval(*expr.operand(0), scope);
      return truthy(left) ? eval(*expr.operand(1), scope) : left;
    }
    case ExprKind::kOr: {
      const Value left = eval(*expr.operand(0), scope);
      return truthy(left) ? left : eval(*expr.operand(1), scope);
    }
    case ExprKind::kBinary: {
      const Value left = eval(*expr.operand(0), scope);
      return binaryOperation(rt_, expr.op, left, eval(*expr.operand(1), scope));
    }
    case ExprKind::kConcat:
      return evalConcat(expr, scope);
    case ExprKind::kCompare:
      return evalCompare(expr, scope);
    case ExprKind::kConditional:
      if (truthy(eval(*expr.operand(0), scope))) return eval(*expr.operand(1), scope);
      return expr.operand(2) != nullptr
                 ? eval(*expr.operand(2), scope)
                 : Value::undefined(Hint::kText,
                                    "the inline if-expression evaluated to false and no else section was defined.");
  }
  return Value();
}

Value Interpreter::evalName(const Expr& expr, Scope& scope) {
  if (const Value* value = scope.find(rt_, expr.name())) return *value;
  return Value::undefined(Hint::kName, expr.name());
}

Value Interpreter::evalCollection(const Expr& expr, Scope& scope) {
  if (expr.kind == ExprKind::kDict) {
    Dict* const dict = Dict::make(rt_, expr.count / 2);
    for (size_t i = 0; i + 1 < expr.count; i += 2) {
      const Value key = eval(*expr.operand(i), scope);
      dict->set(rt_, key, eval(*expr.operand(i + 1), scope));
    }
    return Value(dict);
  }
  const std::span<Value> items = rt_.newValues(expr.count);
  for (size_t i = 0; i < items.size(); ++i) items[i] = eval(*expr.operand(i), scope);
  return Sequence::make(rt_, expr.kind == ExprKind::kList ? Sequence::Flavor::kList : Sequence::Flavor::kTuple, items);
}

Value Interpreter::evalSubscript(const Expr& expr, Scope& scope) {
  const Value object = eval(*expr.operand(0), scope);
  const Expr& key = *expr.operand(1);
  if (key.kind != ExprKind::kSlice) return subscriptOf(rt_, object, eval(key, scope));
  const auto bound = [&](size_t i) { return key.operand(i) != nullptr ? eval(*key.operand(i), scope) : Value(); };
  const Value start = bound(0), stop = bound(1), step = bound(2);
  return slice(rt_, object, start, stop, step);
}

CallArgs Interpreter::evalArguments(const Arguments* arguments, Scope& scope) {
  if (arguments == nullptr) return {};
  if (arguments->star != nullptr || arguments->double_star != nullptr) return evalStarArguments(*arguments, scope);
  const std::span<Value> positional = rt_.newValues(arguments->positional.size());
  for (size_t i = 0; i < positional.size(); ++i) positional[i] = eval(*arguments->positional[i], scope);
  const size_t count = arguments->named.size();
  rt_.charge(count * sizeof(NamedValue));
  const std::span<NamedValue> named = rt_.objects().array<NamedValue>(count);
  for (size_t i = 0; i < count; ++i) {
    for (const NamedValue& given : named.first(i)) {
      if (rt_.sameName(given.name, arguments->named[i].name))
        raise("keyword argument repeated: {}", printable(given.name));
    }
    named[i] = {arguments->named[i].name, eval(*arguments->named[i].value, scope)};
  }
  return {.positional = positional, .named = named};
}

CallArgs Interpreter::evalStarArguments(const Arguments& arguments, Scope& scope) {
  Arguments plain = arguments;
  plain.star = plain.double_star = nullptr;
  CallArgs args = evalArguments(&plain, scope);
  if (arguments.star != nullptr) {
    ValueBuffer positional(rt_);
    positional.append(args.positional);
    Items items(rt_, eval(*arguments.star, scope));
    for (Value item; items.next(item);) positional.push(item);
    args.positional = positional.finish();
  }
  if (arguments.double_star != nullptr) {
    const Value names = eval(*arguments.double_star, scope);
    if (!names.isDict()) raise("argument after ** must be a mapping, not {}", typeName(names));
    Buffer<NamedValue> named(rt_);
    named.append(args.named);
    for (const auto& [name, value] : names.dict().entries()) {
      if (!name.isString()) raise("keywords must be strings");
      named.push({name.string(), value});
    }
    args.named = named.finish();
  }
  return args;
}

Value Interpreter::evalCall(const Expr& expr, Scope& scope) {
  const Expr& callee = *expr.operand(0);
  if (callee.kind == ExprKind::kAttribute) {
    const Value object = eval(*callee.operand(0), scope);
    if (hasMethod(object, callee.name())) {
      CallArgs args = evalArguments(expr.arguments, scope);
      return *callMethod(rt_, object, callee.name(), args);
    }
    const Value function = attributeOf(rt_, object, callee.name());
    CallArgs args = evalArguments(expr.arguments, scope);
    return callValue(function, args);
  }
  const Value function = eval(callee, scope);
  CallArgs args = evalArguments(expr.arguments, scope);
  return callValue(function, args);
}

Value Interpreter::evalFilter(const Expr& expr, Scope& scope) {
  const Value input = eval(*expr.operand(0), scope);
  CallArgs args = evalArguments(expr.arguments, scope);
  return applyFilter(rt_, expr.name(), input, args);
}

Value Interpreter::evalTest(const Expr& expr, Scope& scope) {
  const Value input = eval(*expr.operand(0), scope);
  CallArgs args = evalArguments(expr.arguments, scope);
  return Value(applyTest(rt_, expr.name(), input, args));
}

Value Interpreter::evalConcat(const Expr& expr, Scope& scope) {
  Value text = str(rt_, eval(*expr.operand(0), scope));
  for (size_t i = 1; i < expr.count; ++i) {
    const Value part = str(rt_, eval(*expr.operand(i), scope));
    text = rt_.concat(text.string(), part.string());
  }
  return text;
}

Value Interpreter::evalCompare(const Expr& expr, Scope& scope) {
  Value left = eval(*expr.operand(0), scope);
  const std::string_view operators = expr.name();
  for (size_t i = 0; i < operators.size(); ++i) {
    const Value right = eval(*expr.operand(i + 1), scope);
    if (!compareValues(rt_, static_cast<Op>(operators[i]), left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

}  // namespace chorus::tmpl
