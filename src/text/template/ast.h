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

// Operands by kind:
// - kSubscript: object and key
// - kSlice: start, stop and step (each may be null)
// - kDict: keys and values alternating
// - kConditional: condition, value and alternative (may be null)
// - kCompare: the first operand, then one per operator
// The tree of a template may have at most 64 bytes per byte of the template, so a node is small and stores a single
// operand in itself.
struct Expr {
  ExprKind kind;
  Op op = Op::kAdd;    // for kUnary and kBinary
  uint16_t depth = 1;  // height of this subtree; bounded, because evaluation recurses
  int32_t line;
  Value value;  // the constant; for kCompare a text with one byte per operator; otherwise the name as a text
  uint32_t count = 0;
  union {
    const Expr* one = nullptr;
    const Expr* const* many;
  };
  const Arguments* arguments = nullptr;  // null if there are none

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

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string_view name;
  std::string_view attribute;
  std::span<const Target> items;
  bool is_tuple = false;
};

struct Parameter {
  std::string_view name;
  const Expr* fallback = nullptr;  // null if there is none
};

// Expressions by kind:
// - kIf: one condition per branch
// - kFor: the iterable and the filter (may be null)
// - kSet: the value
// - kWith: one value per target
// - kCallBlock: the call
// - kFilterBlock, kSetBlock: the filter chain (may be null), applied to the name kFilteredBlock
struct StmtParts {
  std::span<const Expr* const> expressions;
  std::span<const Body> bodies;  // one per branch; if has_else is set, the last one is the else branch
  std::span<const Target> targets;
  std::span<const Parameter> parameters;
};

struct Stmt {
  StmtKind kind;
  bool has_else = false;
  bool recursive = false;  // for kFor: loop(items) renders the loop again
  bool uses_varargs : 1 = false, uses_kwargs : 1 = false, uses_caller : 1 = false;
  int32_t line;
  std::string_view text;  // for kData the text; for kMacro the name
  union {
    const Expr* output = nullptr;  // for kOutput
    const StmtParts* parts;        // for all kinds except kData and kOutput
  };
};
static_assert(sizeof(Stmt) <= 32);

inline constexpr std::string_view kFilteredBlock = " block";

}  // namespace chorus::tmpl
