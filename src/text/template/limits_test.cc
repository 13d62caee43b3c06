// Templates that try to exhaust the stack, the memory or the time of a thread.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/thread_time.h"
#include "text/chat_template.h"
#include "text/template/arena.h"

namespace chorus {
namespace {

// Runs on a thread with the smallest stack that the server may have.
void onSmallStack(const std::function<void()>& job) {
  constexpr size_t kStack = size_t{256} << 10;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&job)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Returns the rendering, or "error: " and the error's message.
std::string attempt(const std::string& text, const ChatTemplateInput& input = {}) {
  try {
    return ChatTemplate::compile(text, "test")->render(input);
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

std::string times(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Expressions that hold another value, X, in every possible way.
const std::vector<std::string>& holders() {
  static const std::vector<std::string> table = {"[X]",
                                                 "(X,)",
                                                 "{'k': X}",
                                                 "{(X,): 1}",
                                                 "dict(k=X)",
                                                 "dict([('k', X)])",
                                                 "namespace(k=X)",
                                                 "cycler(X)",
                                                 "cycler(X).next",
                                                 "cycler(X).reset",
                                                 "cycler([X], 1).next",
                                                 "joiner(X ~ '')",
                                                 "[X].index",
                                                 "{'k': X}.get",
                                                 "{'k': X}.items",
                                                 "{'k': X}.items()",
                                                 "{'k': X}.keys()",
                                                 "{'k': X}.values()",
                                                 "{'k': X} | items",
                                                 "{'k': X} | dictsort",
                                                 "[X] | list",
                                                 "[X] | map('list')",
                                                 "[X] | select",
                                                 "[X] | batch(1) | list",
                                                 "[X] | slice(1) | list",
                                                 "[[X]] | sum(start=[])",
                                                 "[{'a': 1, 'b': X}] | groupby('a')",
                                                 "([{'a': 1, 'b': X}] | groupby('a'))[0].list",
                                                 "[X, X] | reverse",
                                                 "[X][:1]",
                                                 "[X] * 2",
                                                 "[X] + [1]",
                                                 "[loop, X]",
                                                 "loop.changed",
                                                 "loop.cycle(X, 1)",
                                                 "[m, X]",
                                                 "X | default(1)",
                                                 "('%s' % [X])[:9]"};
  return table;
}

std::string chain(const std::string& holder, size_t count) {
  return "{% macro m(a, b=1) %}{{ caller }}{{ varargs }}{{ kwargs }}{% endmacro %}{% set ns = namespace(x=0, y=0) %}"
         "{% for i in range(" +
         std::to_string(count) + ") %}{% set ns.x = " + replaced(holder, "X", "ns.x") +
         " %}{% if loop.changed(ns.x) %}{% endif %}{% set ns.y = " + replaced(holder, "X", "ns.y") + " %}{% endfor %}";
}

TEST(TemplateLimits, ChainsOfCapturesAreFreedFlat) {
  onSmallStack([] {
    for (const std::string& holder : holders()) {
      for (const size_t count : {size_t{20}, size_t{140}, size_t{1300}, size_t{20000}}) {
        SCOPED_TRACE(holder);
        const std::string result = attempt(chain(holder, count) + "done");
        EXPECT_TRUE(result == "done" || result.starts_with("error: ")) << result;
      }
    }
  });
}

// Regression test: a request of 611 bytes crashed the server.
TEST(TemplateLimits, CyclersThatHoldEachOtherDoNotCrash) {
  onSmallStack([] {
    for (const int cyclers : {10, 1300, 100000}) {
      for (const int levels : {0, 1, 15, 135}) {
        std::string sets, value = "ns.x";
        for (int left = levels; left > 0; left -= 15) {
          const auto brackets = static_cast<size_t>(std::min(left, 15));
          sets += "{% set v = " + std::string(brackets, '[') + value + std::string(brackets, ']') + " %}";
          value = "v";
        }
        const std::string result = attempt(
            fmt::format("{{% set ns=namespace(x=0) %}}{{% for i in range({}) %}}{}{{% set ns.x = cycler({}).next "
                        "%}}{{% endfor %}}done",
                        cyclers, sets, value));
        EXPECT_TRUE(result == "done" || result.starts_with("error: ")) << result;
      }
    }
  });
}

TEST(TemplateLimits, ReferencesMayFormCyclesAndLongChains) {
  onSmallStack([] {
    EXPECT_EQ(
        attempt("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.f = [a, b] %}{{ a "
                "}}{{ a.f }}"),
        "<Namespace>[<Namespace>, <Namespace>]");
    EXPECT_EQ(attempt("{% set ns = namespace() %}{% macro f() %}{{ ns.f() if false else 1 }}{% endmacro %}"
                      "{% set ns.f = f %}{{ f() }}"),
              "1");
    EXPECT_EQ(attempt("{% set top = namespace(last=namespace()) %}{% for i in range(30000) %}{% set n = namespace() %}"
                      "{% set last = top.last %}{% set last.n = n %}{% set top.last = n %}{% endfor %}ok"),
              "ok");
  });
}

TEST(TemplateLimits, WalksOverDeepValuesStayOnTheStack) {
  onSmallStack([] {
    for (const std::string holder : {"[X]", "(X,)", "{'k': X}", "([1, X],)", "{'k': (X,)}"}) {
      for (const size_t depth : {size_t{10}, size_t{70}, size_t{148}, size_t{200}}) {
        for (const std::string use :
             {"{{ ns.x }}", "{{ ns.x == ns.y }}", "{{ ns.x < ns.y }}", "{{ {ns.x: 1}[ns.y] }}", "{{ ns.x | tojson }}",
              "{{ ns.x | tojson(indent=1, sort_keys=true) }}", "{{ ns.x in [1, ns.y] }}", "{{ [ns.x, ns.y] | sort }}",
              "{{ [ns.x, ns.y] | unique | list }}", "{{ ns.x ~ ns.y }}", "{{ '%r' % [ns.x] }}", "{{ [ns.x] | join }}",
              "{{ [ns.x, ns.y] | max }}", "{{ ns.x is upper }}", "{{ raise_exception(ns.x) }}"}) {
          attempt(chain(holder, depth) + use);
        }
      }
    }
  });
}

TEST(TemplateLimits, DeepSyntaxStaysOnTheStack) {
  const std::vector<std::pair<std::string, std::string>> around = {
      {"{{ ", "(|)"},
      {"{{ ", "[|]"},
      {"{{ ", "{'k': |}"},
      {"{{ ", "-|"},
      {"{{ ", "not |"},
      {"{{ ", "1 or 1 and 1 == 1 + 1 ~ 1 * 1 ** (|)"},
      {"{{ ", "f(|)"},
      {"{{ ", "f(k=|)"},
      {"{{ ", "f(*|)"},
      {"{{ ", "a[|]"},
      {"{{ ", "a[|:]"},
      {"{{ ", "1 | default(|)"},
      {"{{ ", "1 is eq(|)"},
      {"{{ ", "1 if | else 1"},
      {"{{ ", "1 if 1 else |"},
      {"{{ ", "|[0]"},
      {"{{ ", "|.a"},
      {"{{ ", "| | list"},
      {"{{ ", "| + 1"},
      {"{{ ", "| ~ 1"},
      {"", "{% if 1 %}|{% endif %}"},
      {"", "{% if 0 %}{% else %}|{% endif %}"},
      {"", "{% for i in [1] %}|{% endfor %}"},
      {"", "{% for i in [1] recursive %}|{% endfor %}"},
      {"", "{% macro m() %}|{% endmacro %}{{ m() }}"},
      {"", "{% set v %}|{% endset %}{{ v }}"},
      {"", "{% filter upper %}|{% endfilter %}"},
      {"", "{% with a = 1 %}|{% endwith %}"},
      {"", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}|{% endcall %}"},
      {"", "{% generation %}|{% endgeneration %}"},
  };
  onSmallStack([&] {
    for (const auto& [open, form] : around) {
      const size_t middle = form.find('|', form.starts_with("| |") ? 0 : form.starts_with("1 |") ? 4 : 0);
      for (const size_t depth : {size_t{5}, size_t{19}, size_t{58}, size_t{149}, size_t{5000}}) {
        SCOPED_TRACE(form);
        const std::string inside = open.empty() ? "x" : "1";
        attempt(fmt::format("{}{}{}{}{}", open, times(form.substr(0, middle), depth), inside,
                            times(form.substr(middle + 1), depth), open.empty() ? "" : " }}"));
      }
    }
    attempt("{% for " + std::string(50, '(') + "a" + std::string(50, ')') + " in [1] %}{% endfor %}");
    attempt("{% for " + times("(a, ", 58) + "a" + std::string(58, ')') + " in [1] %}{% endfor %}");
  });
}

TEST(TemplateLimits, RecursionStaysOnTheStack) {
  onSmallStack([] {
    for (const std::string& text : std::vector<std::string>{
             "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
             "{% macro f(n) %}{% for i in [1] %}{{ [f(n - 1)] | join | upper }}{% endfor %}{% endmacro %}{{ f(9) }}",
             "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
             ("{% for x in [1] recursive %}{% if 1 %}{% set v %}{{ (loop([1]) | upper) ~ 1 }}{% endset %}{% endif %}"
              "{% endfor %}"),
             "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
             ("{% macro f() %}{{ caller() }}{% endmacro %}"
              "{% macro g(n) %}{% call f() %}{{ g(n) }}{% endcall %}{% endmacro %}{{ g(1) }}"),
             "{% set ns = namespace() %}{% macro f() %}{{ ns.f() }}{% endmacro %}{% set ns.f = f %}{{ f() }}",
             "{% macro f(a=f()) %}{% endmacro %}{{ f() }}",
             "{{ [1] | map(" + times("'map', ", 300) + "'list') | list }}",
         }) {
      EXPECT_TRUE(attempt(text).starts_with("error: ")) << text;
    }
    // A recursion that real templates need.
    EXPECT_EQ(attempt("{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}"),
              "987654321");
  });
}

TEST(TemplateLimits, DeepJsonStaysOnTheStack) {
  onSmallStack([] {
    for (const std::string form : {"[|]", R"({"k": |})"}) {
      const size_t middle = form.find('|');
      std::string json = "1";
      for (int i = 0; i < 60; ++i) json = fmt::format("{}{}{}", form.substr(0, middle), json, form.substr(middle + 1));
      ChatTemplateInput input;
      input.variables["deep"] = parseOrderedJson(json, "test");
      input.messages.push_back({{"role", "user"}, {"content", input.variables["deep"]}});
      EXPECT_FALSE(attempt("{{ deep }}{{ messages }}{{ deep == messages[0].content }}{{ messages | tojson }}", input)
                       .starts_with("error: "));
    }
  });
}

// No rendering exceeds its limits; without them each of these ran for minutes.
TEST(TemplateLimits, WorkIsBounded) {
  const std::string texts = "{% set a = 'a' * 1500000 %}{% set b = 'a' * 700000 ~ 'b' %}{% set s = ' ' * 1000000 %}";
  for (const std::string use : {"a.partition(b)",
                                "a.rpartition('b' ~ b)",
                                "a.find(b)",
                                "a.rfind(b)",
                                "a.count(b)",
                                "b in a",
                                "a.split(b)",
                                "a.strip(b)",
                                "a is lower",
                                "a.isupper()",
                                "a == a[1:] ~ 'a'",
                                "a < b",
                                "[a, b] | max",
                                "[[a], [b]] | sort",
                                "{a: 1}.get(a)",
                                "a | int",
                                "s | trim",
                                "a[700000]",
                                "a | length",
                                "a.istitle()",
                                "[a].count(b)",
                                "a.replace(b, '')",
                                "a.startswith(b)",
                                "a[::-1] | first",
                                "a | truncate(1000000)",
                                "a.center(1500001)"}) {
    const std::string text =
        fmt::format("{}{{% for i in range(100000) %}}{{% if {} %}}{{% endif %}}{{% endfor %}}", texts, use);
    WorkMeter meter;
    const auto begin = threadTime();
    try {
      ChatTemplate::compile(text, "test", meter)->render({}, meter, true);
      ADD_FAILURE() << use << " ends";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << use;
      EXPECT_THAT(e.what(), testing::AnyOf(testing::HasSubstr("exceeds"), testing::HasSubstr("more than "))) << use;
    }
    EXPECT_LT(meter.spent(), uint64_t{64} << 20) << use;
    EXPECT_LT(threadTime() - begin, std::chrono::seconds(20)) << use;
  }
}

// The work of one evaluation, beyond that of a loop around it.
uint64_t workOf(const std::string& expression, const std::string& before = "") {
  constexpr uint64_t kTimes = 100;
  const auto spent = [&](const std::string& value) {
    WorkMeter meter;
    const auto chat = ChatTemplate::compile(
        before + fmt::format("{{% for i in range({}) %}}{{% if {} %}}{{% endif %}}{{% endfor %}}", kTimes, value),
        "test");
    chat->render({}, meter);
    return meter.spent();
  };
  return (spent(expression) - spent("1")) / kTimes;
}

TEST(TemplateLimits, ComparingLongNamesIsCharged) {
  constexpr uint64_t kLength = 10'000;
  const std::string x(kLength, 'x'), y = x.substr(1) + 'y', z = x.substr(1) + 'z';
  EXPECT_GE(workOf(y, "{% set " + x + " = 1 %}{% set " + y + " = 1 %}"), 2 * kLength);
  EXPECT_GE(workOf("m(" + y + "=1)", "{% macro m(" + x + ", " + y + "=1) %}{% endmacro %}"), 2 * kLength);
  EXPECT_GE(workOf("dict(" + x + "=1, " + y + "=1, " + z + "=1)"), 3 * kLength);
  EXPECT_GE(workOf("m(**{'" + y + "': 1})", "{% macro m(" + x + "=1) %}{{ kwargs }}{% endmacro %}"), kLength);
}

TEST(TemplateLimits, DigitsOfLargeFloatsAreCharged) {
  const std::string wide = "1" + std::string(300, '0');
  for (const std::string& expression :
       {wide + " == 1e300", "1e300 == " + wide, wide + " < 1e300", "1e300 >= " + wide, "1e300 in [" + wide + "]",
        std::string("{1e300: 1}"), std::string("1e300 | int")}) {
    EXPECT_GE(workOf(expression), 512U) << expression;
  }
  const std::string long_one(4300, '9');
  EXPECT_GE(workOf("9223372036854775808 < " + long_one), long_one.size());
  EXPECT_GE(workOf(long_one + " > 9223372036854775808"), long_one.size());
  EXPECT_GE(workOf("1.5e-290 | round(300)"), 2000U);
  EXPECT_GE(workOf("'%.350f' % 1e300"), 4000U);
  // Numbers that rounding leaves as they are cost nothing.
  EXPECT_LE(workOf("1.5 | round(300)"), 512U);
  EXPECT_LE(workOf("1e300 | round(300)"), 512U);
}

TEST(TemplateLimits, FormatsOfNumbersAreLimited) {
  EXPECT_EQ(attempt("{{ '%.9999f' % 1.5 }}"),
            "error: test line 1: a format precision of 9999; the limit for numbers is 350");
  EXPECT_THAT(attempt("{{ '%9999999d' % 1 }}"), testing::HasSubstr("a format width or precision of more than 999999"));
  EXPECT_EQ(
      attempt("{{ ('%5000.2f' % 1.5) | length }} {{ ('%-5000d' % 1) | length }} {{ ('%.350f' % 1e300) | length }}"),
      "5000 5000 652");
}

TEST(TemplateLimits, IntegersDoNotOverflow) {
  EXPECT_EQ(attempt("{{ (-9223372036854775807 - 1) % 3 }} {{ (-9223372036854775807 - 1) % -3 }} "
                    "{{ 9223372036854775807 % -2 }} {{ (-9223372036854775807 - 1) % 9223372036854775807 }}"),
            "1 -2 -1 9223372036854775806");
  EXPECT_EQ(attempt("{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904) | list }}"),
            "[-9223372036854775807, -4611686018427387903, 1, 4611686018427387905]");
}

TEST(TemplateLimits, TheMetersLimitsStopARendering) {
  const std::string busy = "{% for i in range(90000) %}{{ 'abc' | upper }}{% endfor %}";
  const auto stopped = [&](WorkMeter& meter) {
    try {
      ChatTemplate::compile(busy, "test", meter)->render({}, meter);
    } catch (const WorkStopped& e) {
      return e.reason();
    }
    ADD_FAILURE() << "ends";
    return WorkStopped::Reason::kWork;
  };
  WorkMeter little({.work = 1 << 20});
  EXPECT_EQ(stopped(little), WorkStopped::Reason::kWork);
  EXPECT_LT(little.spent(), (1 << 20) + (1 << 18));
  WorkMeter late({.deadline = WorkMeter::Clock::now()});
  EXPECT_EQ(stopped(late), WorkStopped::Reason::kDeadline);
  WorkMeter cancelled;
  cancelled.cancel();
  EXPECT_EQ(stopped(cancelled), WorkStopped::Reason::kCancelled);
  WorkMeter compiling({.work = 1 << 16});
  EXPECT_THROW(ChatTemplate::compile(times("{{ a }}", 10000), "test", compiling), WorkStopped);
}

size_t heapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(TemplateLimits, CompiledTemplatesAreSmall) {
  for (const std::string unit : {"{{a}}",
                                 "{{a}}b",
                                 "{{-a}}",
                                 "{{a.b.b.b.b.b.b.b}}",
                                 "{{f()()()()()()}}",
                                 "{{[1,1,1,1,1,1,1,1,1,1]}}",
                                 "{{a|b|b|b|b}}",
                                 "{{f(a)(a)(a)(a)}}",
                                 "{{------------a}}",
                                 "{%if a%}{%endif%}",
                                 "{%set a=a%}",
                                 "{%for a in a%}{%endfor%}",
                                 "{%macro a(a)%}{%endmacro%}",
                                 "{{a~a~a~a~a}}",
                                 "{{a[1:]}}",
                                 "{{{1:1,1:1}}}",
                                 "{{a is b c}}",
                                 "{%for a,a,a,a,a,a,a,a in a%}{%endfor%}",
                                 "{%set a%}{%endset%}",
                                 "{{f(a=1,b=1,c=1)}}",
                                 "{##}"}) {
    const std::string text = times(unit, 60000 / unit.size());
    const auto chat = ChatTemplate::compile(text, "test");
    EXPECT_LE(chat->memoryBytes(), 64 * text.size() + 4096) << unit;
  }
  if (tmpl::Arena::kOwnBlocks) return;  // a sanitizer's own allocations are not counted
  const std::string text = times("{{ a | upper }} and {% if b %}c{% endif %}", 20000);
  const size_t before = heapBytes();
  const auto chat = ChatTemplate::compile(text, "test");
  EXPECT_LE(heapBytes() - before, chat->memoryBytes() + 4096);
}

// Memory is counted at its real size, so a rendering can't hold more than its limit.
TEST(TemplateLimits, MemoryIsBounded) {
  for (const std::string text :
       {"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x + [[i, i]] %}{% endfor %}",
        "{% set ns = namespace(x='') %}{% for i in range(100000) %}{% set ns.x = ns.x ~ ns.x[:100] ~ 'abc' %}"
        "{% set ns.y = ns.x | upper %}{% endfor %}",
        "{% set ns = namespace() %}{% for i in range(100000) %}{% for j in range(9) %}{% set ns.x = [ns.x | string] "
        "%}{% endfor %}{% endfor %}",
        "{% set x = ('ab' * 1000000) | list %}{% set y = x | map('upper') | list %}", "{% set x = 'ab' * 40000000 %}",
        "{% set x = ('ab ' * 1000000).split() %}",
        "{% for i in range(90000) %}{% macro m() %}{% endmacro %}{{ m }}{% endfor %}{{ 'a' * 9000000 }}"}) {
    EXPECT_THAT(attempt(text),
                testing::AnyOf(testing::HasSubstr("bytes of text and values"), testing::HasSubstr("bytes of work")))
        << text;
  }
}

TEST(TemplateLimits, AppendingIsLinear) {
  WorkMeter meter;
  EXPECT_EQ(ChatTemplate::compile("{% set ns = namespace(x='') %}{% for i in range(1000) %}{% set ns.x = ns.x ~ 'abc' "
                                  "%}{% endfor %}{{ ns.x | length }}",
                                  "test")
                ->render({}, meter),
            "3000");
}

}  // namespace
}  // namespace chorus
