// Evaluates a template's tree.
#pragma once

#include <string>

#include "text/template/ast.h"
#include "text/template/buffer.h"

namespace chorus::tmpl {

// Throws TemplateError; line() then returns the line of the error. The tree must outlive what it renders.
class Interpreter {
 public:
  explicit Interpreter(Runtime& rt) : rt_(rt) { rt.interpreter = this; }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter() { rt_.interpreter = nullptr; }

  // Defines a variable of the template. The bytes of name must live as long as Value::ofText requires.
  void define(std::string_view name, const Value& value) { globals_.set(rt_, name, value); }
  std::string run(const Body& body);
  int line() const { return line_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  Value eval(const Expr& expr, Scope& scope);
  Value evalName(const Expr& expr, Scope& scope);
  Value evalCollection(const Expr& expr, Scope& scope);
  Value evalCall(const Expr& expr, Scope& scope);
  Value evalFilter(const Expr& expr, Scope& scope);
  Value evalTest(const Expr& expr, Scope& scope);
  Value evalSubscript(const Expr& expr, Scope& scope);
  Value evalConcat(const Expr& expr, Scope& scope);
  Value evalCompare(const Expr& expr, Scope& scope);
  CallArgs evalArguments(const Arguments* arguments, Scope& scope);
  CallArgs evalStarArguments(const Arguments& arguments, Scope& scope);

  Flow exec(const Body& body, Scope& scope, TextBuffer& out);
  Flow execOne(const Stmt& stmt, Scope& scope, TextBuffer& out);
  Flow execIf(const Stmt& stmt, Scope& scope, TextBuffer& out);
  Flow execFor(const Stmt& stmt, Scope& scope, TextBuffer& out);
  Flow execLoop(const Stmt& stmt, const Value& iterable, int64_t level, Scope& scope, TextBuffer& out);
  Flow execBlock(const Stmt& stmt, Scope& scope, TextBuffer& out);
  Value kept(const Stmt& stmt, const Value& iterable, Scope& scope);
  void execCallBlock(const Stmt& stmt, Scope& scope, TextBuffer& out);
  void execSet(const Stmt& stmt, Scope& scope);
  void print(const Value& value, TextBuffer& out);
  void assign(const Target& target, const Value& value, Scope& scope);
  void unpack(const Target& target, const Value& value, Scope& scope);
  Value makeMacro(const Stmt& stmt, Scope& scope, std::string_view name);
  static Value callMacro(Runtime& rt, const Function& self, CallArgs& args);
  Value runMacro(const Function& macro, CallArgs& args);
  void bindArguments(const Function& macro, CallArgs& args, Scope& scope);
  Value callLoop(LoopState& loop, CallArgs& args);
  Value callValue(const Value& callee, CallArgs& args);
  Scope* inner(Scope& parent);
  Value filtered(const Expr* filters, const Value& text, Scope& scope);

  Runtime& rt_;
  Scope globals_;
  int line_ = 1;
};

}  // namespace chorus::tmpl
