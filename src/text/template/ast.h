// The syntax tree of a template. Immutable after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace chorus::tmpl {

enum class ExprKind {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kUnary,
  kNot,
  kAnd,
  kOr,
  kBinary,
  kConcat,
  kCompare,
  kConditional
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;  // *args, **kwargs
};

// operands by kind: kSubscript object and key; kSlice start, stop and step (each may be null); kDict keys and values
// in turn; kConditional condition, value and alternative (may be null); kCompare first, then one per operator.
struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;     // of the tree below; bounded, so that evaluation can recurse
  std::string name;  // of a name, attribute, filter, test; an operator
  Value value;       // of a constant
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;  // of kCompare
  std::unique_ptr<Arguments> arguments;
};

enum class StmtKind {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// What an assignment writes: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> items;
  bool is_tuple = false;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null when there is none
};

// expressions by kind: kIf one condition per branch; kFor the iterable and the filter (may be null); kSet the value;
// kWith one value per target; kCallBlock the call; kFilterBlock and kSetBlock the filter chain (may be null), applied
// to the name kFilteredBlock.
struct Stmt {
  StmtKind kind;
  int line;
  std::string text;  // of data; the name of a macro
  std::vector<ExprPtr> expressions;
  std::vector<Body> bodies;  // one per branch; the last of an if or for with else is the else branch
  bool has_else = false;
  std::vector<Target> targets;
  std::vector<Parameter> parameters;
  bool recursive = false;  // of kFor: loop(items) renders it again
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

inline constexpr const char* kFilteredBlock = " block";

}  // namespace chorus::tmpl
