#include "text/template/interpreter.h"

#include <algorithm>

#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

std::shared_ptr<Scope> inner(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}
}  // namespace

std::string Interpreter::run(const Body& body, const std::map<std::string, Value>& variables) {
  auto globals = std::make_shared<Scope>();
  for (const auto& [name, value] : globalFunctions()) globals->set(name, value);
  for (const auto& [name, value] : variables) globals->set(name, value);
  std::string out;
  exec(body, inner(globals), out);
  return out;
}

void Interpreter::print(std::string text, std::string& out) {
  rt_.charge(text.size());
  out += text;
}

Interpreter::Flow Interpreter::exec(const Body& body, const ScopePtr& scope, std::string& out) {
  const Runtime::Deeper deeper(rt_);
  for (const StmtPtr& stmt : body) {
    rt_.step();
    line_ = stmt->line;
    if (const Flow flow = execOne(*stmt, scope, out); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execOne(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  switch (stmt.kind) {
    case StmtKind::kData:
      print(stmt.text, out);
      break;
    case StmtKind::kOutput: {
      const Value value = eval(*stmt.expressions[0], scope);
      rt_.charge(static_cast<size_t>(value.weight()));
      print(str(value), out);
      break;
    }
    case StmtKind::kIf:
      return execIf(stmt, scope, out);
    case StmtKind::kFor:
      return execFor(stmt, scope, out);
    case StmtKind::kSet:
      assign(stmt.targets[0], eval(*stmt.expressions[0], scope), scope);
      break;
    case StmtKind::kMacro:
      scope->set(stmt.text, makeMacro(stmt, scope, stmt.text));
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

Interpreter::Flow Interpreter::execIf(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  for (size_t i = 0; i < stmt.expressions.size(); ++i) {
    if (truthy(eval(*stmt.expressions[i], scope))) return exec(stmt.bodies[i], scope, out);
  }
  return stmt.has_else ? exec(stmt.bodies.back(), scope, out) : Flow::kNormal;
}

Interpreter::Flow Interpreter::execFor(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  return execLoop(stmt, eval(*stmt.expressions[0], scope), 1, scope, out);
}

Interpreter::Flow Interpreter::execLoop(const Stmt& stmt, const Value& iterable, int64_t level, const ScopePtr& scope,
                                        std::string& out) {
  std::vector<Value> items = itemsOf(rt_, iterable);
  if (stmt.expressions[1]) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopePtr test = inner(scope);
      assign(stmt.targets[0], item, test);
      if (truthy(eval(*stmt.expressions[1], test))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return stmt.has_else ? exec(stmt.bodies[1], inner(scope), out) : Flow::kNormal;
  auto loop = std::make_shared<LoopState>();
  for (const Value& item : items) loop->depth = std::max(loop->depth, item.depth() + 1);
  loop->items = std::move(items);
  loop->level = level;
  if (stmt.recursive) {
    rt_.keepScope(scope);
    loop->recurse = [this, &stmt, level, closure = std::weak_ptr<Scope>(scope)](const Value& inner_items) {
      const int line = line_;
      std::string text;
      execLoop(stmt, inner_items, level + 1, closure.lock(), text);
      line_ = line;
      return Value(std::move(text));
    };
  }
  ScopePtr body;
  for (; loop->index < loop->items.size(); ++loop->index) {
    rt_.step();
    if (body && body.use_count() == 1)
      body->variables.clear();
    else
      body = inner(scope);
    body->set("loop", Value(loop));
    assign(stmt.targets[0], loop->items[loop->index], body);
    if (exec(stmt.bodies[0], body, out) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

// Blocks whose body is rendered in a scope of its own.
Interpreter::Flow Interpreter::execBlock(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const ScopePtr block = inner(scope);
  if (stmt.kind == StmtKind::kWith) {
    for (size_t i = 0; i < stmt.targets.size(); ++i) assign(stmt.targets[i], eval(*stmt.expressions[i], scope), block);
    return exec(stmt.bodies[0], block, out);
  }
  if (stmt.kind == StmtKind::kScope) return exec(stmt.bodies[0], block, out);
  std::string text;
  const Flow flow = exec(stmt.bodies[0], block, text);
  if (flow != Flow::kNormal) return flow;  // the buffer is left behind with the block
  text = filtered(stmt.expressions[0], std::move(text), scope);
  if (stmt.kind == StmtKind::kSetBlock)
    assign(stmt.targets[0], Value(std::move(text)), scope);
  else
    print(std::move(text), out);
  return Flow::kNormal;
}

std::string Interpreter::filtered(const ExprPtr& filters, std::string text, const ScopePtr& scope) {
  if (!filters) return text;
  const ScopePtr block = inner(scope);
  block->set(kFilteredBlock, Value(std::move(text)));
  return str(eval(*filters, block));
}

void Interpreter::execCallBlock(const Stmt& stmt, const ScopePtr& scope, std::string& out) {
  const Expr& expr = *stmt.expressions[0];
  const Value callee = eval(*expr.operands[0], scope);
  CallArgs args = evalArguments(*expr.arguments, scope);
  args.named.emplace_back("caller", makeMacro(stmt, scope, "caller"));
  print(str(call(rt_, callee, args)), out);
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.is_tuple) {
    if (value.isUndefined() || (!value.isSequence() && !value.isString() && !value.isDict())) {
      requireDefined(value);
      raise("cannot unpack non-iterable {} object", typeName(value));
    }
    const std::vector<Value> items = itemsOf(rt_, value);
    if (items.size() != target.items.size()) {
      raise("{} values to unpack (expected {})", items.size() < target.items.size() ? "not enough" : "too many",
            target.items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
  } else if (!target.attribute.empty()) {
    const Value* object = scope->find(target.name);
    if (object == nullptr || object->kind() != Kind::kNamespace)
      raise("cannot assign attribute on non-namespace object");
    if (target.attribute.starts_with('_')) raise("a namespace's names may not begin with an underscore");
    rt_.charge(sizeof(Value) * 2);
    const auto dict = object->dict();
    dict->set(Value(target.attribute), value);
  } else {
    scope->set(target.name, value);
  }
}

Value Interpreter::makeMacro(const Stmt& stmt, const ScopePtr& scope, std::string name) {
  rt_.charge(256);
  rt_.keepScope(scope);
  const Value macro =
      makeFunction(name, [this, &stmt, closure = std::weak_ptr<Scope>(scope), name](Runtime&, CallArgs& args) {
        return callMacro(stmt, closure.lock(), name, args);
      });
  for (const Parameter& parameter : stmt.parameters) macro.function()->arguments.push_back(parameter.name);
  return macro;
}

Value Interpreter::callMacro(const Stmt& stmt, const ScopePtr& closure, const std::string& name, CallArgs& args) {
  const ScopePtr scope = inner(closure);
  const int line = line_;
  const size_t count = stmt.parameters.size();
  auto extra = std::make_shared<Dict>();
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    scope->set(stmt.parameters[i].name, args.positional[i]);
  }
  for (auto& [key, value] : args.named) {
    const bool known =
        std::any_of(stmt.parameters.begin(), stmt.parameters.end(), [&](const Parameter& p) { return p.name == key; });
    if (known) {
      if (scope->findHere(key) != nullptr) raise("macro '{}' got multiple values for argument '{}'", name, key);
      scope->set(key, value);
    } else if (key == "caller" && stmt.uses_caller) {
      scope->set(key, value);
    } else if (stmt.uses_kwargs) {
      extra->set(Value(key), value);
    } else {
      raise("macro '{}' takes no keyword argument '{}'", name, printable(key));
    }
  }
  if (args.positional.size() > count && !stmt.uses_varargs) {
    raise("macro '{}' takes not more than {} argument(s)", name, count);
  }
  for (const Parameter& parameter : stmt.parameters) {
    if (scope->findHere(parameter.name) != nullptr) continue;
    scope->set(parameter.name, parameter.fallback
                                   ? eval(*parameter.fallback, scope)
                                   : Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
  }
  if (stmt.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope->set("varargs", makeTuple(std::move(rest)));
  }
  if (stmt.uses_kwargs) scope->set("kwargs", Value(extra));
  if (stmt.uses_caller && scope->findHere("caller") == nullptr) {
    scope->set("caller", Value::undefined("No caller defined"));
  }
  std::string out;
  exec(stmt.bodies[0], scope, out);
  line_ = line;
  return Value(std::move(out));
}

Value Interpreter::eval(const Expr& expr, const ScopePtr& scope) {
  const Runtime::Deeper deeper(rt_);
  rt_.step();
  const auto operand = [&](size_t i) { return eval(*expr.operands[i], scope); };
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
      return attributeOf(rt_, operand(0), expr.name);
    case ExprKind::kSubscript:
      return evalSubscript(expr, scope);
    case ExprKind::kSlice:
      raise("a slice must stand alone in its brackets");
    case ExprKind::kCall:
      return evalCall(expr, scope);
    case ExprKind::kFilter:
      return evalFilter(expr, scope);
    case ExprKind::kTest: {
      const Value input = operand(0);
      CallArgs args = evalArguments(*expr.arguments, scope);
      return Value(applyTest(rt_, expr.name, input, args));
    }
    case ExprKind::kUnary:
      return unaryOperation(expr.name, operand(0));
    case ExprKind::kNot:
      return Value(!truthy(operand(0)));
    case ExprKind::kAnd: {
      Value left = operand(0);
      return truthy(left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      Value left = operand(0);
      return truthy(left) ? left : operand(1);
    }
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return binaryOperation(rt_, expr.name, left, operand(1));
    }
    case ExprKind::kConcat:
      return evalConcat(expr, scope);
    case ExprKind::kCompare:
      return evalCompare(expr, scope);
    case ExprKind::kConditional:
      if (truthy(operand(0))) return operand(1);
      return expr.operands[2]
                 ? operand(2)
                 : Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
  }
  return Value();
}

Value Interpreter::evalName(const Expr& expr, const ScopePtr& scope) {
  if (const Value* value = scope->find(expr.name)) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", printable(expr.name)));
}

Value Interpreter::evalCollection(const Expr& expr, const ScopePtr& scope) {
  rt_.charge(expr.operands.size() * sizeof(Value));
  if (expr.kind == ExprKind::kDict) {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
      const Value key = eval(*expr.operands[i], scope);
      dict->set(key, eval(*expr.operands[i + 1], scope));
    }
    return Value(std::move(dict));
  }
  std::vector<Value> items;
  items.reserve(expr.operands.size());
  for (const ExprPtr& item : expr.operands) items.push_back(eval(*item, scope));
  return makeSequence(expr.kind == ExprKind::kList ? Sequence::Flavor::kList : Sequence::Flavor::kTuple,
                      std::move(items));
}

Value Interpreter::evalSubscript(const Expr& expr, const ScopePtr& scope) {
  const Value object = eval(*expr.operands[0], scope);
  const Expr& key = *expr.operands[1];
  if (key.kind != ExprKind::kSlice) return subscriptOf(rt_, object, eval(key, scope));
  const auto bound = [&](size_t i) { return key.operands[i] ? eval(*key.operands[i], scope) : Value(); };
  const Value start = bound(0), stop = bound(1), step = bound(2);
  return slice(rt_, object, start, stop, step);
}

CallArgs Interpreter::evalArguments(const Arguments& arguments, const ScopePtr& scope) {
  CallArgs args;
  args.positional.reserve(arguments.positional.size());
  for (const ExprPtr& argument : arguments.positional) args.positional.push_back(eval(*argument, scope));
  for (const auto& [name, argument] : arguments.named) {
    for (const auto& given : args.named) {
      if (given.first == name) raise("keyword argument repeated: {}", name);
    }
    args.named.emplace_back(name, eval(*argument, scope));
  }
  if (arguments.star) {
    for (Value& item : itemsOf(rt_, eval(*arguments.star, scope))) args.positional.push_back(std::move(item));
  }
  if (arguments.double_star) {
    const Value names = eval(*arguments.double_star, scope);
    if (!names.isDict()) raise("argument after ** must be a mapping, not {}", typeName(names));
    rt_.step(lengthOf(names));
    for (const auto& [name, value] : names.dict()->entries) {
      if (!name.isString()) raise("keywords must be strings");
      args.named.emplace_back(name.string(), value);
    }
  }
  return args;
}

Value Interpreter::evalCall(const Expr& expr, const ScopePtr& scope) {
  const Expr& callee = *expr.operands[0];
  if (callee.kind == ExprKind::kAttribute) {
    const Value object = eval(*callee.operands[0], scope);
    if (hasMethod(object, callee.name)) {
      CallArgs args = evalArguments(*expr.arguments, scope);
      return *callMethod(rt_, object, callee.name, args);
    }
    const Value function = attributeOf(rt_, object, callee.name);
    CallArgs args = evalArguments(*expr.arguments, scope);
    return call(rt_, function, args);
  }
  const Value function = eval(callee, scope);
  CallArgs args = evalArguments(*expr.arguments, scope);
  return call(rt_, function, args);
}

Value Interpreter::evalFilter(const Expr& expr, const ScopePtr& scope) {
  const Value input = eval(*expr.operands[0], scope);
  CallArgs args = evalArguments(*expr.arguments, scope);
  return applyFilter(rt_, expr.name, input, args);
}

Value Interpreter::evalConcat(const Expr& expr, const ScopePtr& scope) {
  std::string text;
  for (const ExprPtr& part : expr.operands) {
    const Value value = eval(*part, scope);
    rt_.charge(static_cast<size_t>(value.weight()));
    text += str(value);
  }
  return Value(rt_.charged(std::move(text)));
}

Value Interpreter::evalCompare(const Expr& expr, const ScopePtr& scope) {
  Value left = eval(*expr.operands[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = eval(*expr.operands[i + 1], scope);
    if (!compareValues(rt_, expr.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace chorus::tmpl
