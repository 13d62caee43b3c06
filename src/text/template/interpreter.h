// Evaluates a template's tree.
#pragma once

#include <map>
#include <string>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace chorus::tmpl {

// Throws TemplateError; line() of the interpreter then says where.
class Interpreter {
 public:
  explicit Interpreter(Runtime& rt) : rt_(rt) {}

  std::string run(const Body& body, const std::map<std::string, Value>& variables);
  int line() const { return line_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  Value eval(const Expr& expr, const ScopePtr& scope);
  Value evalName(const Expr& expr, const ScopePtr& scope);
  Value evalCollection(const Expr& expr, const ScopePtr& scope);
  Value evalCall(const Expr& expr, const ScopePtr& scope);
  Value evalFilter(const Expr& expr, const ScopePtr& scope);
  Value evalSubscript(const Expr& expr, const ScopePtr& scope);
  Value evalConcat(const Expr& expr, const ScopePtr& scope);
  Value evalCompare(const Expr& expr, const ScopePtr& scope);
  CallArgs evalArguments(const Arguments& arguments, const ScopePtr& scope);

  Flow exec(const Body& body, const ScopePtr& scope, std::string& out);
  Flow execOne(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  Flow execIf(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  Flow execFor(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  Flow execLoop(const Stmt& stmt, const Value& iterable, int64_t level, const ScopePtr& scope, std::string& out);
  Flow execBlock(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void execCallBlock(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void print(std::string text, std::string& out);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  Value makeMacro(const Stmt& stmt, const ScopePtr& scope, std::string name);
  Value callMacro(const Stmt& stmt, const ScopePtr& closure, const std::string& name, CallArgs& args);
  std::string filtered(const ExprPtr& filters, std::string text, const ScopePtr& scope);

  Runtime& rt_;
  int line_ = 1;
};

}  // namespace chorus::tmpl
