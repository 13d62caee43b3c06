// Fuzzes a client's chat template over a fixed conversation. If the first byte of the input is 1, the rest is a list of
// choices from which a template is built that nests all operations and values; otherwise the input is the template's
// text.
// parses: src/text/chat_template.cc src/text/template
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/exact_json.h"
#include "fuzz/fuzz_target.h"
#include "text/chat_template.h"
#include "text/template/runtime.h"

namespace {
using namespace chorus;

// Lower than the limit of a client's template, so that work that is not charged shows up as excess time.
constexpr uint64_t kWork = uint64_t{2} << 20;

// Builds a template from bytes. After the last byte every choice is the first one, which ends the current construct.
class Generator {
 public:
  explicit Generator(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::string run() {
    out_ =
        "{% set ns = namespace(x=1, y=[]) %}{% set a = 'ab ' * 99 %}{% set b = [1, 'x', (2.5, none)] %}{% set v = 1 %}"
        "{% macro m(p, q=1) %}{{ p }}{{ varargs }}{{ kwargs }}{{ caller }}{% endmacro %}"
        "{% for i in range(3) recursive %}";
    while (at_ < bytes_.size() && out_.size() < kMaxText) statement();
    return std::move(out_) + "{% endfor %}";
  }

 private:
  using Names = std::span<const std::string_view>;
  static constexpr size_t kMaxText = 20000;
  static constexpr int kMaxDepth = 12;
  static constexpr std::string_view kTexts[] = {"a",
                                                "'x'",
                                                "''",
                                                "'\u00e9\u0130\u00df'",
                                                "messages[0].content",
                                                "'a.0'",
                                                "'%s %5d'",
                                                "'{} {x}'",
                                                "'upper'",
                                                "'eq'",
                                                "'k'",
                                                "' x,y\\n'"};
  static constexpr std::string_view kNumbers[] = {
      "1", "0", "-1", "2.5", "n", "loop.index", "99999", "1e308", "9223372036854775807"};
  static constexpr std::string_view kLists[] = {
      "b", "ns.y", "messages", "[]", "range(9)", "(1, 2)", "[[1, 2], [0, 3]]", "tools", "'xyz' | list"};
  static constexpr std::string_view kDicts[] = {"messages[0]", "{}", "{'k': 1, 'x': 'y'}", "tools[0].function",
                                                "{1: b}"};
  static constexpr std::string_view kOthers[] = {"ns.x", "v",       "ns", "loop",   "m",      "none",
                                                 "true", "missing", "i",  "cycler", "caller", "varargs"};

  uint8_t byte() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }
  size_t below(size_t count) { return byte() % count; }
  bool ended() const { return depth_ >= kMaxDepth || out_.size() >= kMaxText || at_ >= bytes_.size(); }
  void oneOf(Names names) { out_ += names[below(names.size())]; }

  void terminal() {
    switch (below(5)) {
      case 0:
        return oneOf(kTexts);
      case 1:
        return oneOf(kNumbers);
      case 2:
        return oneOf(kLists);
      case 3:
        return oneOf(kDicts);
      default:
        return oneOf(kOthers);
    }
  }

  void argument() {
    const size_t form = below(8);
    if (form < 3) return oneOf(kTexts);
    if (form < 6) return oneOf(kNumbers);
    expression();
  }

  // Appends arguments in parentheses, mostly one, because most operations take one.
  void arguments() {
    static constexpr size_t kCounts[] = {0, 1, 1, 1, 2, 0, 1, 3};
    const size_t count = kCounts[below(std::size(kCounts))];
    out_ += "(";
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += ", ";
      // Only the last argument may be named.
      const size_t form = i + 1 == count ? below(16) : 0;
      if (form == 15) {
        out_ += "**";
        oneOf(kDicts);
      } else if (form == 14) {
        out_ += "*";
        list();
      } else {
        static constexpr std::string_view kNames[] = {"attribute=", "default=", "case_sensitive="};
        if (form > 10) out_ += kNames[form - 11];
        argument();
      }
    }
    out_ += ")";
  }

  void text() {
    if (ended() || below(2) == 0) return oneOf(kTexts);
    wrapped("((", ") | string)");
  }
  void list() {
    if (ended() || below(2) == 0) return oneOf(kLists);
    wrapped("[", below(2) != 0 ? "]" : ", 1]");
  }

  void wrapped(std::string_view before, std::string_view after) {
    out_ += before;
    expression();
    out_ += after;
  }

  void method() {
    static const tmpl::MethodNames methods = tmpl::methodNames();
    static constexpr std::string_view kAttributes[] = {"next",      "reset",    "current",  "list", "grouper", "name",
                                                       "arguments", "previtem", "nextitem", "x",    "y",       "k"};
    out_ += "(";
    switch (below(6)) {
      case 0:
        wrapped("", ").");
        return oneOf(kAttributes);
      case 1:
        list();
        out_ += ").";
        oneOf(methods.of_list);
        break;
      case 2:
        oneOf(kDicts);
        out_ += ").";
        oneOf(methods.of_dict);
        break;
      case 3:
        out_ += "loop).";
        oneOf(methods.of_loop);
        break;
      default:
        text();
        out_ += ").";
        oneOf(methods.of_text);
    }
    // Sometimes the method is not called; the result is then a bound method that holds the object.
    if (below(6) != 0) arguments();
  }

  void filter() {
    static const std::vector<std::string_view> filters = tmpl::filterNames();
    out_ += "((";
    switch (below(4)) {
      case 0:
        expression();
        break;
      case 1:
        text();
        break;
      default:
        list();
    }
    out_ += ") | ";
    oneOf(filters);
    if (below(2) != 0) arguments();
    out_ += below(4) == 0 ? " | list)" : ")";
  }

  void test() {
    static const std::vector<std::string_view> tests = [] {
      std::vector<std::string_view> names = tmpl::testNames();
      std::erase_if(names, [](std::string_view name) { return name[0] < 'a'; });
      return names;
    }();
    wrapped("((", ") is ");
    oneOf(tests);
    if (below(2) != 0) arguments();
    out_ += ")";
  }

  void slice() {
    out_ += "(";
    below(2) != 0 ? text() : list();
    out_ += ")[";
    static constexpr std::string_view kBounds[] = {"", "1", "-1", "loop.index", "99999", "-9223372036854775807"};
    oneOf(kBounds);
    out_ += ":";
    oneOf(kBounds);
    if (below(2) != 0) out_ += below(2) != 0 ? ":2" : ":-1";
    out_ += "]";
  }

  void binary() {
    static constexpr std::string_view kForms[] = {"~", "and", "or"};
    const size_t op = below(static_cast<size_t>(tmpl::kOps) + std::size(kForms));
    const std::string_view name = op < static_cast<size_t>(tmpl::kOps) ? tmpl::opName(static_cast<tmpl::Op>(op))
                                                                       : kForms[op - static_cast<size_t>(tmpl::kOps)];
    wrapped("((", ") ");
    out_ += name;
    out_ += " (";
    below(3) != 0 ? argument() : expression();
    out_ += "))";
  }

  void holder() {
    static const auto globals = tmpl::globalFunctions();
    switch (below(9)) {
      case 0:
        return wrapped("[", "]");
      case 1:
        return wrapped("(", ",)");
      case 2:
        return wrapped("{'k': ", "}");
      case 3:
        return wrapped("{(", ", 1): 2}");
      case 4:
        return wrapped("cycler(", ").next");
      case 5:
        return wrapped("namespace(x=", ")");
      case 6:
        out_ += "m";
        return arguments();
      case 7:
        return wrapped("loop([", "])");
      default:
        out_ += globals[below(globals.size())].name();
        arguments();
    }
  }

  void expression() {
    const size_t form = below(16);
    if (ended() || form == 0) return terminal();
    ++depth_;
    if (form < 5) {
      filter();
    } else if (form < 8) {
      method();
    } else if (form < 11) {
      holder();
    } else if (form == 11) {
      test();
    } else if (form == 12) {
      slice();
    } else if (form == 13) {
      binary();
    } else if (form == 14) {
      wrapped("(", " if ");
      expression();
      if (below(2) != 0) wrapped(" else ", "");
      out_ += ")";
    } else {
      wrapped("(", ")[");
      argument();
      out_ += "]";
    }
    --depth_;
  }

  void block(std::string_view end) {
    const size_t count = below(4);
    for (size_t i = 0; i < count; ++i) statement();
    out_ += "{% ";
    out_ += end;
    out_ += " %}";
  }

  void statement() {
    const size_t form = below(14);
    if (ended() || form == 0) return wrapped("{{ ", " }}");
    ++depth_;
    switch (form) {
      case 1:
      case 2:
        wrapped("{% set v = ", " %}");
        break;
      case 3:
        wrapped("{% set ns.x = ", " %}");
        break;
      case 4:
        wrapped("{% set ns.y = [ns.y, ", "] %}");
        break;
      case 5:
        wrapped("{% if ", " %}");
        block("endif");
        break;
      case 6:
        wrapped("{% for i in ", below(2) != 0 ? " recursive %}" : " %}");
        block("endfor");
        break;
      case 7:
        wrapped("{% for i, v in [(1, ", below(2) != 0 ? ")] if i %}" : ")] %}");
        block("endfor");
        break;
      case 8:
        wrapped("{% macro m(p, q=", ") %}{{ p }}{{ varargs }}{{ kwargs }}");
        block("endmacro");
        break;
      case 9:
        out_ += "{% call(i) m";
        arguments();
        out_ += " %}";
        block("endcall");
        break;
      case 10:
        wrapped("{% set v | default(", ") %}");
        block("endset");
        break;
      case 11:
        wrapped("{% with v = ", " %}");
        block("endwith");
        break;
      default:
        wrapped(below(2) != 0 ? "{% for j in range(99) %}{% set ns.x = " : "{% for j in range(9) %}{% set ns.y = ",
                " %}");
        block("endfor");
    }
    --depth_;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string out_;
};
}  // namespace

// A template of any length may use kWork of work and the memory limit of a client's template. A byte of work takes
// about 1 ns, and up to 10 ns in the most expensive operations.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 1e-3 * 10 * kWork, .bytes = 9 << 20};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  static const OrderedJson conversation = OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hello \u00e9\n"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
                 {"role": "tool", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})");
  static ChatTemplateInput input = [] {
    ChatTemplateInput made;
    made.messages = conversation["messages"];
    made.tools = conversation["tools"];
    made.variables = parseExactJson(R"({"n": -123456789012345678901234567890})", "fuzz");
    made.add_generation_prompt = true;
    made.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    made.now = 0;
    return made;
  }();
  const bool generated = size > 0 && data[0] == 1;
  const std::string text =
      generated ? Generator({data + 1, size - 1}).run() : std::string(reinterpret_cast<const char*>(data), size);
  try {
    WorkMeter meter({.work = kWork});
    ChatTemplate::compile(text, "input", meter)->render(input, meter, true);
  } catch (const Error&) {
  }
}
