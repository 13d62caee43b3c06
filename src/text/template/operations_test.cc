// Measures what each operation of templates costs on texts of 1 KB to 1 MB.
#include <gtest/gtest.h>
#include <malloc.h>

#include <ctime>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/template/from_json.h"
#include "text/template/interpreter.h"
#include "text/template/parser.h"

namespace chorus::tmpl {
namespace {

// An expression over the variables of makeInput(), and how fast its cost may grow.
struct Row {
  const char* expression;
  double factor = 1;       // allowed beyond linear growth, such as the logarithm in sorting
  double slow_memory = 1;  // how much slower the same steps are in a table larger than the cache
};

// Returns, by kind and name of an operation, expressions that make it work hard.
const std::map<std::string, std::vector<Row>>& rows() {
  static const std::map<std::string, std::vector<Row>> table = {
      {"filter trim", {{"spaces | trim"}, {"a | trim('a')"}}},
      {"filter upper", {{"t | upper"}, {"u | upper"}}},
      {"filter lower", {{"t | lower"}, {"u | lower"}}},
      {"filter capitalize", {{"t | capitalize"}}},
      {"filter title", {{"t | title"}}},
      {"filter string", {{"l | string"}}},
      {"filter safe", {{"l | safe"}}},
      {"filter escape", {{"t | escape"}}},
      {"filter e", {{"t | e"}}},
      {"filter forceescape", {{"t | forceescape"}}},
      {"filter urlencode", {{"t | urlencode"}, {"d | urlencode"}}},
      {"filter xmlattr", {{"d | xmlattr"}}},
      {"filter default", {{"missing | default(t)"}}},
      {"filter d", {{"missing | d(t)"}}},
      {"filter replace", {{"t | replace('e', 'xy')"}, {"a | replace(needle, '')"}}},
      {"filter int", {{"digits | int(0, 16) if false else a | int"}, {"spaces | int"}, {"under | int"}}},
      {"filter float", {{"a | float"}, {"zeros | float"}}},
      {"filter abs", {{"-5 | abs"}}},
      {"filter round", {{"5.55 | round(1)"}}},
      {"filter indent", {{"lines | indent(2)"}}},
      {"filter tojson", {{"l | tojson"}, {"d | tojson(indent=2)"}, {"d | tojson(sort_keys=true)", 3}, {"u | tojson"}}},
      {"filter format", {{"'%s' | format(t)"}, {"percents | format"}, {"flags | format"}}},
      {"filter wordcount", {{"t | wordcount"}}},
      {"filter truncate", {{"a | truncate(a | length - 9)"}}},
      {"filter center", {{"t | center(2 * n)"}}},
      {"filter length", {{"u | length"}}},
      {"filter count", {{"u | count"}}},
      {"filter first", {{"t | first"}}},
      {"filter last", {{"t | last"}}},
      {"filter list", {{"t | list"}, {"l | list"}}},
      {"filter items", {{"d | items | list"}}},
      {"filter join", {{"l | join(', ')"}, {"t | join('-')"}}},
      {"filter map", {{"l | map('upper') | list"}}},
      {"filter select", {{"l | select('eq', 'word3') | list"}}},
      {"filter reject", {{"l | reject('eq', 'word3') | list"}}},
      {"filter selectattr", {{"o | selectattr('k', 'eq', 3) | list"}}},
      {"filter rejectattr", {{"o | rejectattr('k', 'eq', 3) | list"}}},
      {"filter sort", {{"l | sort", 3}, {"pair | sort"}, {"o | sort(attribute='k')", 3}}},
      {"filter dictsort", {{"d | dictsort", 3}}},
      {"filter unique", {{"l | unique | list"}, {"pair | unique | list"}}},
      {"filter reverse", {{"t | reverse"}, {"u | reverse"}, {"l | reverse | list"}}},
      {"filter sum", {{"o | sum('k')"}}},
      {"filter min", {{"pair | min"}, {"l | min"}}},
      {"filter max", {{"pair | max(case_sensitive=true)"}, {"l | max"}}},
      {"filter batch", {{"l | batch(3, 'x') | list"}}},
      {"filter slice", {{"l | slice(3, 'x') | list"}}},
      {"filter groupby", {{"o | groupby('k')", 3}}},
      {"filter attr", {{"d | attr('items')"}}},
      {"text upper", {{"t.upper()"}}},
      {"text lower", {{"t.lower()"}}},
      {"text casefold", {{"u.casefold()"}}},
      {"text title", {{"t.title()"}, {"u.title()"}}},
      {"text capitalize", {{"t.capitalize()"}}},
      {"text swapcase", {{"t.swapcase()"}}},
      {"text strip", {{"spaces.strip()"}, {"a.strip(needle)"}, {"u.strip(u)", 3}}},
      {"text lstrip", {{"spaces.lstrip()"}, {"a.lstrip('ba')"}}},
      {"text rstrip", {{"spaces.rstrip()"}, {"a.rstrip('ba')"}}},
      {"text split", {{"t.split()"}, {"t.split('e')"}, {"a.split(needle)"}, {"t.split(' ', 3)"}}},
      {"text rsplit", {{"t.rsplit()"}, {"t.rsplit('e')"}, {"a.rsplit(needle)"}, {"a.rsplit(tail)"}}},
      {"text splitlines", {{"lines.splitlines()"}, {"lines.splitlines(true)"}}},
      {"text startswith", {{"a.startswith(needle)"}, {"u.startswith('x', 5, 9)"}}},
      {"text endswith", {{"a.endswith(needle)"}, {"a.endswith((needle, tail))"}}},
      {"text replace", {{"a.replace(needle, '')"}, {"t.replace('', '-')"}, {"t.replace('e', '')"}}},
      {"text join", {{"', '.join(l)"}, {"', '.join(t)"}}},
      {"text format", {{"'{}{}'.format(t, t)"}, {"braces.format()"}}},
      {"text find", {{"a.find(needle)"}, {"a.find(tail)"}, {"u.find('q', 5)"}, {"a.find('aaaaaaaaaaaaaaaaaaaaaaab')"}}},
      {"text rfind", {{"a.rfind(needle)"}, {"a.rfind(tail)"}, {"u.rfind('q', 5)"}}},
      {"text index", {{"a.index('a', n - 1)"}}},
      {"text rindex", {{"a.rindex('a')"}}},
      {"text count", {{"a.count(needle)"}, {"a.count('aa')"}, {"u.count('')"}}},
      {"text zfill", {{"t.zfill(2 * n)"}}},
      {"text ljust", {{"t.ljust(2 * n)"}}},
      {"text rjust", {{"t.rjust(2 * n, '\u00e9')"}}},
      {"text center", {{"t.center(2 * n)"}}},
      {"text partition", {{"a.partition(needle)"}, {"a.partition(tail)"}}},
      {"text rpartition", {{"a.rpartition(needle)"}, {"a.rpartition(tail)"}}},
      {"text removeprefix", {{"a.removeprefix(needle)"}}},
      {"text removesuffix", {{"a.removesuffix(tail)"}}},
      {"text expandtabs", {{"lines.expandtabs()"}}},
      {"text istitle", {{"'X' ~ a.istitle()"}, {"a.istitle()"}}},
      {"text isascii", {{"a.isascii()"}}},
      {"text isspace", {{"spaces.isspace()"}}},
      {"text isalpha", {{"a.isalpha()"}, {"u.isalpha()"}}},
      {"text isdigit", {{"zeros.isdigit()"}}},
      {"text isdecimal", {{"zeros.isdecimal()"}}},
      {"text isnumeric", {{"zeros.isnumeric()"}}},
      {"text isalnum", {{"a.isalnum()"}}},
      {"text isupper", {{"a.isupper()"}}},
      {"text islower", {{"a.islower()"}}},
      {"list index", {{"l.index('word7')"}, {"[l, l].index(l2)"}}},
      {"list count", {{"l.count('word7')"}, {"[[l], [l]].count([l2])"}}},
      {"list copy", {{"l.copy()"}}},
      {"dict items", {{"d.items() | list"}}},
      {"dict keys", {{"d.keys() | list"}}},
      {"dict values", {{"d.values() | list"}}},
      {"dict get", {{"d.get('key7')"}, {"d.get(a)"}, {"{a: 1}.get(a)"}, {"{(l | join, a): 1}.get((l2 | join, a))"}}},
      {"dict copy", {{"d.copy()"}}},
      {"loop cycle", {{"range(3)"}}},
      {"loop changed", {{"range(3)"}}},
      {"test defined", {{"t is defined"}}},
      {"test undefined", {{"t is undefined"}}},
      {"test none", {{"t is none"}}},
      {"test boolean", {{"t is boolean"}}},
      {"test true", {{"t is true"}}},
      {"test false", {{"t is false"}}},
      {"test integer", {{"t is integer"}}},
      {"test float", {{"t is float"}}},
      {"test number", {{"t is number"}}},
      {"test string", {{"t is string"}}},
      {"test mapping", {{"d is mapping"}}},
      {"test iterable", {{"l is iterable"}}},
      {"test sequence", {{"l is sequence"}}},
      {"test callable", {{"t is callable"}}},
      {"test sameas", {{"a is sameas(a2)"}}},
      {"test in", {{"needle is in(a)"}, {"l is in([l2])"}}},
      {"test even", {{"4 is even"}}},
      {"test odd", {{"4 is odd"}}},
      {"test divisibleby", {{"4 is divisibleby(2)"}}},
      {"test lower", {{"a is lower"}, {"l is lower"}}},
      {"test upper", {{"a is upper"}, {"u is upper"}}},
      {"test escaped", {{"t is escaped"}}},
      {"test filter", {{"t is filter"}}},
      {"test test", {{"t is test"}}},
      {"test eq", {{"a is eq(a2)"}}},
      {"test ==", {{"l | select('==', l2) | list"}}},
      {"test equalto", {{"a is equalto(a2)"}}},
      {"test ne", {{"l is ne(l2)"}}},
      {"test !=", {{"pair | select('!=', a2) | list"}}},
      {"test lt", {{"a is lt(a2)"}}},
      {"test <", {{"pair | select('<', a2) | list"}}},
      {"test lessthan", {{"l is lessthan(l2)"}}},
      {"test le", {{"a is le(a2)"}}},
      {"test <=", {{"pair | select('<=', a2) | list"}}},
      {"test gt", {{"a is gt(a2)"}}},
      {"test >", {{"pair | select('>', a2) | list"}}},
      {"test greaterthan", {{"l is greaterthan(l2)"}}},
      {"test ge", {{"a is ge(a2)"}}},
      {"test >=", {{"pair | select('>=', a2) | list"}}},
      {"op +", {{"t + t"}, {"l + l"}}},
      {"op -", {{"n - 1"}}},
      {"op *", {{"t * 2"}, {"'ab' * n"}, {"[1] * n"}}},
      {"op /", {{"n / 3"}}},
      {"op //", {{"n // 3"}}},
      {"op %", {{"'%s %r' % (t, t)"}, {"'%(key7)s' % d"}, {"'%.5s' % u"}, {"flags % ()"}, {"precision % 1"}}},
      {"op **", {{"n ** 2"}}},
      {"op ==", {{"a == a2"}, {"l == l2"}, {"d == d2", 1, 4}}},
      {"op !=", {{"a != a2"}}},
      {"op <", {{"a < a2"}, {"l < l2"}}},
      {"op <=", {{"a <= a2"}}},
      {"op >", {{"a > a2"}}},
      {"op >=", {{"a >= a2"}}},
      {"op in", {{"needle in a"}, {"l in [l2]"}, {"a in d"}, {"'word' in l"}}},
      {"op not in", {{"needle not in a"}}},
      {"global range", {{"range(9) | list"}}},
      {"global dict", {{"dict(d)"}, {"dict(d.items())"}}},
      {"global namespace", {{"namespace(d)"}}},
      {"global joiner", {{"joiner(t)()"}}},
      {"global cycler", {{"cycler(*l).next()"}}},
      {"global raise_exception", {{"raise_exception(l) if false"}}},
      {"global strftime_now", {{"strftime_now('%Y')"}}},
      {"form ~", {{"t ~ t ~ l"}}},
      {"form slice", {{"u[1:]"}, {"u[::-1]"}, {"t[::2]"}, {"l[::-1]"}, {"u[n // 4]"}, {"l[1:5]"}}},
      {"form star", {{"cycler(*l)"}, {"dict(**d)"}}},
      {"form list", {{"[l, t]"}}},
  };
  return table;
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  out.resize(bytes);
  return out;
}

// Variables whose texts have this many bytes.
ChatTemplateInput makeInput(size_t bytes) {
  ChatTemplateInput input;
  input.now = 0;
  OrderedJson& v = input.variables;
  v["n"] = bytes;
  v["a"] = v["a2"] = std::string(bytes, 'a');
  v["needle"] = std::string(bytes / 2, 'a') + "b";
  v["tail"] = "b" + std::string(bytes / 2, 'a');
  v["t"] = repeated("The quick <Brown> fox; ", bytes);
  v["u"] = repeated("\u00e9\u00d6\u00fc\u00c4", bytes);
  v["spaces"] = std::string(bytes / 2, ' ') + "x" + std::string(bytes / 2, ' ');
  v["zeros"] = std::string(bytes, '0');
  v["digits"] = std::string(bytes, '1');
  v["under"] = repeated("0_", bytes - 1) + "0";
  v["lines"] = repeated("one\ttwo\r\nthree\n", bytes);
  v["percents"] = repeated("%% ", bytes / 3 * 3);
  v["flags"] = "%" + std::string(bytes, '-') + "%";
  v["precision"] = "%." + std::string(bytes, '0') + "s";
  v["braces"] = repeated("{{}} ", bytes / 5 * 5);
  v["pair"] = {std::string(bytes, 'a'), std::string(bytes - 1, 'a') + "b"};
  OrderedJson words = OrderedJson::array(), objects = OrderedJson::array();
  std::vector<std::pair<std::string, OrderedJson>> entries;
  OrderedJson::object_t dict;
  for (size_t i = 0; i < bytes / 16; ++i) {
    words.push_back("word" + std::to_string(i * 7919 % (bytes / 16)));
    objects.push_back({{"k", i % 17}});
    static_cast<std::vector<OrderedJson::object_t::value_type>&>(dict).emplace_back("key" + std::to_string(i), "value");
  }
  v["l"] = v["l2"] = words;
  v["o"] = objects;
  v["d"] = v["d2"] = dict;
  return input;
}

struct Measured {
  double cost = 0;                                           // bytes of work
  double seconds = std::numeric_limits<double>::infinity();  // the thread's CPU time, minimum of all runs
};

double threadSeconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Evaluates the expression `times` times, with the variables that it names.
void measure(const ChatTemplateInput& input, std::string_view expression, int times, Measured& out) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 40;
  WorkMeter meter;
  Runtime rt({.max_work = kNoLimit, .max_memory = kNoLimit}, meter, 0);
  Interpreter interpreter(rt);
  JsonReader reader(rt);
  for (const auto& [name, value] : input.variables.items()) {
    if (expression.find(name) != std::string_view::npos) interpreter.define(name, reader.read(value));
  }
  MemoryLimit memory(kNoLimit);
  Arena arena(memory);
  const Body body = parseTemplate("{% set r = " + std::string(expression) + " %}", arena, meter);
  const uint64_t before = meter.spent();
  const double begin = threadSeconds();
  for (int i = 0; i < times; ++i) interpreter.run(body);
  out.seconds = std::min(out.seconds, threadSeconds() - begin);
  out.cost = static_cast<double>(meter.spent() - before);
}

double costOf(const ChatTemplateInput& input, std::string_view expression) {
  Measured out;
  measure(input, expression, 1, out);
  return out.cost;
}

// Keeps freed memory for reuse: fresh memory from the system costs more than the operation that writes to it.
void keepMemory() {
  constexpr int kLargest = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kLargest);
}

TEST(TemplateOperations, EachHasARow) {
  std::set<std::string> wanted;
  const auto want = [&](const std::string& kind, const std::vector<std::string_view>& names) {
    for (const std::string_view name : names) wanted.insert(kind + " " + std::string(name));
  };
  want("filter", filterNames());
  want("test", testNames());
  const MethodNames methods = methodNames();
  want("text", methods.of_text);
  want("list", methods.of_list);
  want("dict", methods.of_dict);
  want("loop", methods.of_loop);
  for (int op = 0; op < kOps; ++op) wanted.insert("op " + std::string(opName(static_cast<Op>(op))));
  for (const Function& function : globalFunctions()) wanted.insert("global " + std::string(function.name()));
  for (const std::string form : {"~", "slice", "star", "list"}) wanted.insert("form " + form);
  std::set<std::string> given;
  for (const auto& [name, expressions] : rows()) given.insert(name);
  EXPECT_EQ(wanted, given);
}

TEST(TemplateOperations, CostIsLinear) {
  // Sanitizer builds are slow and use a smaller text.
  constexpr size_t kSmall = size_t{1} << 10, kLarge = size_t{1} << (Arena::kOwnBlocks ? 17 : 20);
  const ChatTemplateInput small = makeInput(kSmall), large = makeInput(kLarge);
  for (const auto& [name, expressions] : rows()) {
    for (const Row& row : expressions) {
      SCOPED_TRACE(name + ": " + row.expression);
      double before = 0, after = 0;
      ASSERT_NO_THROW(before = costOf(small, row.expression));
      ASSERT_NO_THROW(after = costOf(large, row.expression));
      EXPECT_LE(after, std::max(before, double{kSmall}) * 1.5 * row.factor * (double{kLarge} / double{kSmall}));
    }
  }
}

// The texts of a tuple, which takes longer to make than to test, may all be too long to be compared.
TEST(TemplateOperations, EveryTextOfATupleIsCharged) {
  const ChatTemplateInput input = makeInput(16);
  const double made = costOf(input, "(('yy',) * 10000) | length");
  for (const char* tested : {"'a'.startswith(('yy',) * 10000)", "'a'.endswith(('yy',) * 10000)"}) {
    EXPECT_GE(costOf(input, tested), made + 9'900 * double{sizeof(Value)}) << tested;
  }
}

// Times are the minimum CPU time of several runs, so that a busy machine does not matter; a failed measurement is
// repeated. An operation too short to measure can't block a thread for long.
constexpr double kMeasurable = 1e-3;
constexpr int kAttempts = 10;

TEST(TemplateOperations, TimeGrowsAsTheCost) {
  constexpr size_t kSmall = size_t{64} << 10, kLarge = size_t{1} << 20;
  constexpr int kRatio = kLarge / kSmall;
  if (Arena::kOwnBlocks) return;  // times of a sanitizer build mean nothing here
  keepMemory();
  const ChatTemplateInput small = makeInput(kSmall), large = makeInput(kLarge);
  for (const auto& [name, expressions] : rows()) {
    for (const Row& row : expressions) {
      SCOPED_TRACE(name + ": " + row.expression);
      Measured little, much;
      double growth = 0;
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        measure(large, row.expression, 1, much);
        if (much.seconds < kMeasurable) break;
        measure(small, row.expression, kRatio, little);
        growth = (much.seconds / much.cost) / (little.seconds / little.cost) / row.slow_memory;
        if (growth <= 4) break;
      }
      EXPECT_TRUE(much.seconds < kMeasurable || growth <= 4) << growth;
    }
  }
}

// A byte of work takes about 1 ns; the most expensive operations take a few.
TEST(TemplateOperations, NoOperationTakesMuchLongerThanItsCost) {
  constexpr double kMostNanoseconds = 10;
  constexpr int kMostAttempts = 5 * kAttempts;  // the fastest counts; other programs on the machine slow most of them
  if (Arena::kOwnBlocks) return;
  keepMemory();
  const ChatTemplateInput input = makeInput(size_t{512} << 10);
  for (const auto& [name, expressions] : rows()) {
    for (const Row& row : expressions) {
      SCOPED_TRACE(name + ": " + row.expression);
      Measured out;
      for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
        measure(input, row.expression, 1, out);
        if (out.seconds <= kMeasurable + 1e-9 * kMostNanoseconds * out.cost) break;
      }
      EXPECT_LE(out.seconds, kMeasurable + 1e-9 * kMostNanoseconds * out.cost) << out.cost;
    }
  }
}

}  // namespace
}  // namespace chorus::tmpl
