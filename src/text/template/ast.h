// The syntax tree of a template. It lives in the arena of the compiled template and never changes.
#pragma once

#include <span>
#include <string_view>

#include "text/template/operator_names.h"
#include "text/template/value.h"

namespace chorus::tmpl {

enum class ExprKind : uint8_t {
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

struct Arguments {
  struct Named {
    std::string_view name;
    const Expr* value;
  };
  std::span<const Expr* const> positional;
  std::span<const Named> named;
  const Expr* star = nullptr;         // *args
  const Expr* double_star = nullptr;  // **kwargs
};

// operands by kind: kSubscript object and key; kSlice start, stop and step (each may be null); kDict keys and values
// in turn; kConditional condition, value and alternative (may be null); kCompare first, then one per operator.
// A template's bytes become at most 64 times as many bytes of tree, so a node is small, and a single operand stands in
// the node.
struct Expr {
  ExprKind kind;
  Op op = Op::kAdd;    // of kUnary and kBinary
  uint16_t depth = 1;  // of the tree below; bounded, so that evaluation can recurse
  int32_t line;
  Value value;  // of a constant; for kCompare a text whose bytes are the operators; else the name, a text
  uint32_t count = 0;
  union {
    const Expr* one = nullptr;
    const Expr* const* many;
  };
  const Arguments* arguments = nullptr;  // null when there are none

  const Expr* operand(size_t i) const { return count == 1 ? one : many[i]; }
  std::string_view name() const { return value.string(); }
};
static_assert(sizeof(Expr) <= 48);

enum class StmtKind : uint8_t {
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
using Body = std::span<const Stmt>;

// What an assignment writes: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string_view name;
  std::string_view attribute;
  std::span<const Target> items;
  bool is_tuple = false;
};

struct Parameter {
  std::string_view name;
  const Expr* fallback = nullptr;  // null when there is none
};

// expressions by kind: kIf one condition per branch; kFor the iterable and the filter (may be null); kSet the value;
// kWith one value per target; kCallBlock the call; kFilterBlock and kSetBlock the filter chain (may be null), applied
// to the name kFilteredBlock.
struct StmtParts {
  std::span<const Expr* const> expressions;
  std::span<const Body> bodies;  // one per branch; the last of an if or for with else is the else branch
  std::span<const Target> targets;
  std::span<const Parameter> parameters;
};

struct Stmt {
  StmtKind kind;
  bool has_else = false;
  bool recursive = false;  // of kFor: loop(items) renders it again
  bool uses_varargs : 1 = false, uses_kwargs : 1 = false, uses_caller : 1 = false;
  int32_t line;
  std::string_view text;  // of data; the name of a macro
  union {
    const Expr* output = nullptr;  // of kOutput
    const StmtParts* parts;        // of others than kData and kOutput
  };
};
static_assert(sizeof(Stmt) <= 32);

inline constexpr std::string_view kFilteredBlock = " block";

}  // namespace chorus::tmpl
