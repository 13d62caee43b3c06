#include "formats/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "formats/testing/torch_test_file.h"
#include "formats/torch_objects.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string refusalOf(const std::string& bytes) {
  return errorOf([&] {
    TorchObjects host("f", 5);
    readPickle(bytes, "f", host);
  });
}
std::string refusalOfBody(const std::string& body) { return refusalOf(pickled::whole(body)); }

TEST(PickleTest, ReadsNumbersTextsAndContainers) {
  TorchObjects host("f", 5);
  const std::string bytes =
      "\x80\x02"
      "}(" +
      pickled::text("list") +
      "](K\x05M\x01\x02J\xff\xff\xff\xff"
      "eK\x07\x85" +
      "aX\x01" + std::string(3, '\0') + "k\x88X\x01" + std::string(3, '\0') + "mNu. and more";
  const Pickle pickle = readPickle(bytes, "f", host);
  EXPECT_EQ(pickle.size, bytes.size() - 9);
  ASSERT_EQ(pickle.root.kind, PickleKind::kDict);
  const auto& items = pickle.heap.items(pickle.root);
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(pickle.heap.text(items[0]), "list");
  const auto& list = pickle.heap.items(items[1]);
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].integer, 5);
  EXPECT_EQ(list[1].integer, 0x201);
  EXPECT_EQ(list[2].integer, -1);
  ASSERT_EQ(list[3].kind, PickleKind::kTuple);
  EXPECT_EQ(pickle.heap.tuple(list[3])[0].integer, 7);
  EXPECT_EQ(items[3].kind, PickleKind::kBool);
  EXPECT_EQ(items[5].kind, PickleKind::kNone);
}

TEST(PickleTest, LongsKeepTheirSign) {
  TorchObjects host("f", 5);
  const auto longOf = [&](const std::string& raw) {
    return readPickle(pickled::whole(fmt::format("\x8a{}{}", static_cast<char>(raw.size()), raw)), "f", host).root;
  };
  EXPECT_EQ(longOf("").integer, 0);
  EXPECT_EQ(longOf("\xff").integer, -1);
  EXPECT_EQ(longOf(std::string("\xff\x00", 2)).integer, 255);
  EXPECT_EQ(longOf(std::string("\x00\x80", 2)).integer, -32768);
  EXPECT_EQ(longOf(std::string(7, '\0') + "\x80").integer, INT64_MIN);
  EXPECT_EQ(longOf(std::string(9, '\x01')).kind, PickleKind::kLong);
}

TEST(PickleTest, MemoReturnsTheSameObject) {
  TorchObjects host("f", 5);
  const Pickle pickle = readPickle(pickled::whole("](]q\x05h\x05"
                                                  "e"),
                                   "f", host);
  const auto& list = pickle.heap.items(pickle.root);
  EXPECT_EQ(list[0].index, list[1].index);
  // A list that contains itself is accepted.
  EXPECT_EQ(refusalOfBody("]q\x01h\x01"
                          "a"),
            "");
}

TEST(PickleTest, CommandsAreRefusedByName) {
  using pickled::global;
  using pickled::text;
  using pickled::tuple;
  const std::string command = tuple({text("touch /tmp/should_not_exist")});
  for (const auto& [module, name] :
       std::vector<std::pair<const char*, const char*>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"nt", "system"},
                                                        {"builtins", "eval"},
                                                        {"builtins", "exec"},
                                                        {"__builtin__", "eval"},
                                                        {"subprocess", "Popen"},
                                                        {"builtins", "getattr"},
                                                        {"importlib", "import_module"},
                                                        {"torch", "load"},
                                                        {"torch.hub", "load"},
                                                        {"numpy", "load"},
                                                        {"torch._utils", "_rebuild_qtensor"},
                                                        {"functools", "partial"},
                                                        {"operator", "attrgetter"}}) {
    const std::string full = std::string(module) + "." + name;
    const auto refused = AllOf(HasSubstr(full), HasSubstr("refused"), Not(HasSubstr("\n")));
    EXPECT_THAT(refusalOfBody(global(module, name) + command + "R"), refused);
    EXPECT_THAT(refusalOfBody(global(module, name)), refused) << "even unused";
    EXPECT_THAT(refusalOfBody(pickled::dict({{"w", global(module, name) + command + "R"}})), refused);
    EXPECT_THAT(refusalOfBody(global(module, name) + ")\x81}b"), refused) << "NEWOBJ and BUILD";
    EXPECT_THAT(refusalOf("\x80\x04" + text(module) + text(name) + "\x93" + command + "R."), refused) << "STACK_GLOBAL";
    EXPECT_THAT(refusalOfBody(fmt::format("({}i{}\n{}\n", text("id"), module, name)), HasSubstr("INST"));
    EXPECT_THAT(refusalOfBody(fmt::format("({}{}o", global(module, name), text("id"))), refused) << "OBJ";
  }
  EXPECT_THAT(refusalOfBody(global("collections", "OrderedDict") + ")\x81"), HasSubstr("NEWOBJ"));
  EXPECT_THAT(refusalOfBody(fmt::format("({}o", global("collections", "OrderedDict"))), HasSubstr("OBJ"));
  EXPECT_THAT(refusalOfBody("\x82\x01"), HasSubstr("EXT1"));
  EXPECT_THAT(refusalOfBody("Pid\n"), HasSubstr("PERSID"));
  EXPECT_THAT(refusalOfBody("I01\n"), HasSubstr("INT"));
  EXPECT_THAT(refusalOfBody(tuple({text("module"), text("m")}) + "Q"), HasSubstr("not a storage"));
  EXPECT_THAT(refusalOfBody(text("x") + "Q"), HasSubstr("not a storage"));
  // Known functions are refused when they are called in a way that torch.save does not use.
  EXPECT_THAT(refusalOfBody(global("collections", "OrderedDict") + tuple({"]"}) + "R"),
              HasSubstr("collections.OrderedDict"));
  EXPECT_THAT(refusalOfBody(global("torch", "FloatStorage") + ")R"), HasSubstr("torch.FloatStorage"));
  EXPECT_THAT(refusalOfBody(global("_codecs", "encode") + tuple({text("x"), text("rot13")}) + "R"),
              HasSubstr("_codecs.encode"));
  // BUILD is accepted only for the attributes of an ordered dictionary.
  EXPECT_THAT(refusalOfBody("}}b"), HasSubstr("BUILD"));
  EXPECT_THAT(refusalOfBody(global("collections", "OrderedDict") + ")R" + text("x") + "b"), HasSubstr("BUILD"));
  EXPECT_EQ(refusalOfBody(global("collections", "OrderedDict") + ")R" + pickled::dict({{"_metadata", "}"}}) + "b"), "");
}

TEST(PickleTest, NamesAreMadePrintable) {
  const std::string text = refusalOfBody("cos\x01\rsys\x1b[31m\nsystem\xff\n");
  EXPECT_THAT(text, HasSubstr("os\\x01\\x0dsys\\x1b[31m.system?"));
}

TEST(PickleTest, ALongNameOfAGlobalIsRefused) {
  const std::string text = "X" + std::string("\x2c\x01\0\0", 4) + std::string(300, 'a');
  EXPECT_THAT(refusalOf("\x80\x04" + text + text + "\x93."), HasSubstr("the name of a global is too long"));
}

TEST(PickleTest, DamageIsRefused) {
  EXPECT_THAT(refusalOf(""), HasSubstr("cut off"));
  EXPECT_THAT(refusalOf("N."), HasSubstr("protocol"));
  for (const char protocol : {0, 1, 6}) {
    EXPECT_THAT(refusalOf(std::string("\x80") + protocol + "N."), HasSubstr("pickle protocol"));
  }
  for (const std::string& body : std::vector<std::string>{"",
                                                          "NN",
                                                          "(N",
                                                          "t",
                                                          "e",
                                                          "u",
                                                          "a",
                                                          "\x85",
                                                          "N\x86",
                                                          "NN\x87",
                                                          "h\x01",
                                                          "q\x01",
                                                          "j\x01",
                                                          "R",
                                                          "NR",
                                                          "b",
                                                          "NNa",
                                                          "}Nu",
                                                          "N(NNu",
                                                          "}(Nu",
                                                          "NNNs",
                                                          "X\xff\xff\xff\xff",
                                                          "X\x01" + std::string(3, '\0') + "\xff",
                                                          "U\x05x",
                                                          "cos",
                                                          "c\n",
                                                          "\x8a\x05x",
                                                          "G1234",
                                                          "Q",
                                                          "]N)R",
                                                          "\x99",
                                                          "(N]ta" /* stack below a mark */}) {
    EXPECT_NE(refusalOfBody(body), "") << body;
  }
  EXPECT_THAT(refusalOfBody("N(R"), HasSubstr("stack")) << "a mark hides what is below it";
  EXPECT_THAT(refusalOfBody("}](N]u"), HasSubstr("not a dictionary"));
  EXPECT_THAT(refusalOfBody("}(]Nu"), HasSubstr("key"));
  EXPECT_THAT(refusalOfBody("\x8c\x01x"), HasSubstr("unknown opcode")) << "of protocol 4 in protocol 2";
}

TEST(PickleTest, WorkIsBounded) {
  EXPECT_THAT(refusalOfBody(std::string(3'000'000, ']')), HasSubstr("opcodes"));
  EXPECT_THAT(refusalOfBody("N" + std::string(3'000'000, '\x85')), HasSubstr("opcodes"));
  // Many calls with the same long list as argument.
  std::string body = "](";
  for (int i = 0; i < 100'000; ++i) body += "K\x01";
  body += "eq\x01" + pickled::global("builtins", "set") + "q\x02";
  for (int i = 0; i < 200'000; ++i) body += "h\x02h\x01\x85R0";
  EXPECT_NE(refusalOfBody(body), "");
  body = pickled::text(std::string(1 << 20, 'x')) + "q\x01" + pickled::global("_codecs", "encode") + "q\x02" +
         pickled::text("latin1") + "q\x03(";
  for (int i = 0; i < 100; ++i) body += "h\x02h\x01h\x03\x86R";
  EXPECT_THAT(refusalOfBody(body), HasSubstr("too much data"));
}

}  // namespace
}  // namespace chorus
