#include "formats/torch_file.h"
#include "formats/torch_contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/testing/error_of.h"
#include "formats/huggingface_files.h"
#include "formats/safetensors.h"
#include "formats/testing/torch_test_file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using pickled::dict;
using pickled::global;
using pickled::number;
using pickled::numbers;
using pickled::storage;
using pickled::tensor;
using pickled::text;
using pickled::tuple;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kSource(test::sourceDir());
const std::string kFloats = global("torch", "FloatStorage");

std::string describe(const TensorView& tensor) {
  Sha256 hash;
  hash.update(tensor.bytes);
  return fmt::format("{}{}:{}", dtypeName(tensor.dtype), shapeText(tensor.shape), hash.hex().substr(0, 16));
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
std::vector<float> valuesOf(const TensorView* view) {
  std::vector<float> values(static_cast<size_t>(view->elements()));
  if (!values.empty()) std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

// A zip archive with the pickled object `body`. Its storage "0" holds 0, 1, 2, 3, 4, 5.
TestZip zipOf(const std::string& body) {
  return {.entries = {{"a/data.pkl", pickled::whole(body)},
                      {"a/byteorder", "little"},
                      {"a/data/0", floats({0, 1, 2, 3, 4, 5})},
                      {"a/version", "3\n"}}};
}
std::string legacyOf(const std::string& body, const std::string& keys, const std::string& tail,
                     const std::string& machine = dict({{"little_endian", "\x88"}})) {
  return pickled::whole("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") + pickled::whole(number(1001)) +
         pickled::whole(machine) + pickled::whole(body) + pickled::whole(keys) + tail;
}
TorchFile parse(const std::string& bytes) { return TorchFile::parse(std::as_bytes(std::span(bytes)), "f"); }
std::string refusalOf(const std::string& bytes) {
  return errorOf([&] { parse(bytes); });
}
std::string refusalOfTensor(const std::string& value) { return refusalOf(zipOf(dict({{"w", value}})).build()); }

TEST(TorchFileTest, ReadsWhatTorchReads) {
  const Json expected = readJsonFile(kSource / "tests/goldens/torch_files.json")["files"];
  ASSERT_GT(expected.size(), 10u);
  for (const auto& [name, tensors] : expected.items()) {
    SCOPED_TRACE(name);
    const TorchFile file = TorchFile::open(kSource / "tests/fuzz/torch_file_fuzz" / (name + ".bin"));
    EXPECT_EQ(file.names().size(), tensors.size());
    for (const auto& [key, text] : tensors.items()) {
      ASSERT_NE(file.find(key), nullptr) << key;
      EXPECT_EQ(describe(*file.find(key)), text.get<std::string>()) << key;
    }
  }
}

// The result of parseHeader() on bytes of which only the needed ones are there.
TorchFile parseHeader(const std::string& bytes, size_t* needed = nullptr) {
  std::vector<std::byte> memory(bytes.size(), std::byte{0xee});
  const auto need = [&](size_t at, size_t size) {
    std::memcpy(memory.data() + at, bytes.data() + at, size);
    if (needed != nullptr) *needed += size;
  };
  return TorchFile::parseHeader(PartialBytes(memory, need), "f");
}

TEST(TorchFileTest, AHeaderAloneHasNamesTypesAndShapes) {
  for (const auto& entry : fs::directory_iterator(kSource / "tests/fuzz/torch_file_fuzz")) {
    SCOPED_TRACE(entry.path());
    const std::string bytes = readFile(entry.path(), size_t{1} << 24);
    const auto first = std::as_bytes(std::span(bytes));
    if (!isTorchArchive(first) && !isTorchPickle(first)) continue;
    std::optional<TorchFile> whole;
    try {
      whole = parse(bytes);
    } catch (const Error&) {
      errorOf([&] { parseHeader(bytes); });  // may be refused or not, but ends
      continue;
    }
    const TorchFile header = parseHeader(bytes);
    EXPECT_FALSE(header.hasValues());
    EXPECT_EQ(header.names(), whole->names());
    for (const std::string& name : whole->names()) {
      const TensorView& expected = *whole->find(name);
      EXPECT_EQ(header.find(name)->dtype, expected.dtype);
      EXPECT_EQ(header.find(name)->shape, expected.shape);
      const auto zeros = header.find(name)->bytes;
      EXPECT_EQ(zeros.size(), expected.bytes.size());
      EXPECT_TRUE(std::ranges::all_of(zeros, [](std::byte b) { return b == std::byte{0}; }));
    }
  }
}

TEST(TorchFileTest, AHeaderIsReadWithoutTheStorages) {
  constexpr int32_t kMany = 1 << 20;
  TestZip zip = zipOf(dict({{"w", tensor(storage(kFloats, "0", kMany), 0, {kMany / 2, 2}, {2, 1})}}));
  zip.entries[2].bytes.assign(kMany * sizeof(float), '\x7f');
  size_t needed = 0;
  EXPECT_THAT(parseHeader(zip.build(), &needed).find("w")->shape, ElementsAre(kMany / 2, 2));
  EXPECT_LT(needed, 4096u);
  // A size that only the directory states.
  zip.entries[2].bytes.resize(100);
  EXPECT_THAT(errorOf([&] { parseHeader(zip.build()); }), HasSubstr("has 100 bytes, its tensors expect 4194304"));
}

TEST(TorchFileTest, BytesOfNoTensorAreRefused) {
  const std::string value = tensor(storage(kFloats, "0", 6), 0, {6}, {1});
  for (const size_t size : {size_t{1} << 19, size_t{1} << 21}) {
    TestZip zip = zipOf(dict({{"w", value}}));
    zip.entries.push_back({"a/other", std::string(size, '\0')});
    const bool is_refused = size > size_t{1} << 20;
    for (const std::string& line : {refusalOf(zip.build()), errorOf([&] { parseHeader(zip.build()); })}) {
      EXPECT_EQ(line.find("bytes belong to none of its tensors") != std::string::npos, is_refused) << line;
    }
  }
}

TEST(TorchFileTest, EveryTruncationIsRefused) {
  for (const char* name : {"views.bin", "legacy_views.bin", "protocol5.bin"}) {
    const std::string whole = readFile(kSource / "tests/fuzz/torch_file_fuzz" / name, 1 << 20);
    for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusalOf(whole.substr(0, size)), "") << name << size;
    EXPECT_NE(refusalOf(whole + "x"), "");
  }
}

TEST(TorchFileTest, ViewsShareTheirStorage) {
  const std::string kept = "q\x07";
  const std::string bytes = zipOf(dict({{"whole", tensor(storage(kFloats, "0", 6) + kept, 0, {2, 3}, {3, 1})},
                                        {"tied", tensor("h\x07", 0, {2, 3}, {3, 1})},
                                        {"tail", tensor(storage(kFloats, "0", 6), 4, {2}, {1})},
                                        {"turned", tensor("h\x07", 0, {3, 2}, {1, 3})},
                                        {"scalar", tensor("h\x07", 5, {}, {})},
                                        {"empty", tensor("h\x07", 6, {0, 4}, {4, 1})},
                                        {"one", tensor("h\x07", 2, {1, 1}, {77, 99})},
                                        {"list", global("torch", "Size") + tuple({numbers({2})}) + "R"}}))
                                .build();
  const TorchFile file = parse(bytes);
  EXPECT_EQ(file.names().size(), 7u);
  EXPECT_EQ(file.find("whole")->bytes.data(), file.find("tied")->bytes.data());
  EXPECT_GE(reinterpret_cast<const char*>(file.find("tail")->bytes.data()), bytes.data());
  EXPECT_LT(reinterpret_cast<const char*>(file.find("tail")->bytes.data()), bytes.data() + bytes.size());
  EXPECT_THAT(valuesOf(file.find("tail")), ElementsAre(4, 5));
  EXPECT_THAT(valuesOf(file.find("turned")), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(valuesOf(file.find("scalar")), ElementsAre(5));
  EXPECT_THAT(file.find("scalar")->shape, ElementsAre());
  EXPECT_THAT(valuesOf(file.find("one")), ElementsAre(2));
  EXPECT_TRUE(file.find("empty")->bytes.empty());
}

TEST(TorchFileTest, TheLastOfTwoValuesCounts) {
  const std::string s = storage(kFloats, "0", 6);
  const std::string bytes = zipOf(dict({{"w", tensor(s, 0, {1}, {1})}, {"w", tensor(s, 3, {1}, {1})}})).build();
  EXPECT_THAT(valuesOf(parse(bytes).find("w")), ElementsAre(3));
}

TEST(TorchFileTest, TensorsStayInsideTheirStorage) {
  const std::string s = storage(kFloats, "0", 6);
  EXPECT_EQ(refusalOfTensor(tensor(s, 0, {6}, {1})), "");
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {7}, {1})), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 6, {1}, {1})), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 7, {0}, {1})), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {2, 2}, {5, 1})), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {2, 2}, {INT32_MAX, INT32_MAX})), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusalOfTensor(tensor(s, -1, {1}, {1})), HasSubstr("offset"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {-1}, {1})), HasSubstr("shape"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {2}, {-1})), HasSubstr("shape"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {2}, {1, 1})), HasSubstr("differ in length"));
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, std::vector<int32_t>(17, 1), std::vector<int32_t>(17, 1))),
              HasSubstr("17 dimensions"));
  EXPECT_NE(refusalOfTensor(tensor(s, 0, std::vector<int32_t>(5, INT32_MAX), std::vector<int32_t>(5, 0))), "");
  EXPECT_THAT(refusalOfTensor(tensor(s, 0, {1000, 1000}, {0, 0})), HasSubstr("repeats its storage"));
  EXPECT_THAT(refusalOfTensor(tensor("N", 0, {1}, {1})), HasSubstr("no storage"));
}

TEST(TorchFileTest, StoragesMustBeWhatTensorsExpect) {
  EXPECT_THAT(refusalOfTensor(tensor(storage(kFloats, "0", 5), 0, {1}, {1})), HasSubstr("has 24 bytes"));
  EXPECT_THAT(refusalOfTensor(tensor(storage(kFloats, "0", 7), 0, {1}, {1})), HasSubstr("has 24 bytes"));
  EXPECT_THAT(refusalOfTensor(tensor(storage(kFloats, "1", 6), 0, {1}, {1})), HasSubstr("storage '1' is missing"));
  EXPECT_THAT(refusalOfTensor(tensor(storage(kFloats, "0", -6), 0, {0}, {1})), HasSubstr("id is malformed"));
  EXPECT_THAT(refusalOfTensor(tensor(storage(global("torch", "ComplexFloatStorage"), "0", 3), 0, {1}, {1})),
              HasSubstr("torch.ComplexFloatStorage"));
  EXPECT_THAT(refusalOfTensor(tensor(storage(global("torch", "float32"), "0", 6), 0, {1}, {1})), HasSubstr("no type"));
  const std::string both = dict({{"a", tensor(storage(kFloats, "0", 6), 0, {1}, {1})},
                                 {"b", tensor(storage(global("torch", "IntStorage"), "0", 6), 0, {1}, {1})}});
  EXPECT_THAT(refusalOf(zipOf(both).build()), HasSubstr("two types or sizes"));
}

TEST(TorchFileTest, ContainersAreChecked) {
  const std::string good = dict({{"w", tensor(storage(kFloats, "0", 6), 0, {6}, {1})}});
  EXPECT_EQ(refusalOf(zipOf(good).build()), "");
  TestZip zip = zipOf(good);
  zip.entries[1].bytes = "big";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("big-endian"));
  zip.entries[1].bytes = "middle";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("byte order"));
  zip = zipOf(good);
  zip.entries[3].bytes = "11";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("version"));
  zip = zipOf(good);
  zip.entries.push_back({"a/constants.pkl", ""});
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("TorchScript"));
  zip = zipOf(good);
  zip.entries[2].name = "b/data/0";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("common folder"));
  zip = zipOf(good);
  zip.entries[0].bytes += "N.";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("follow its pickle"));
  zip = zipOf(good);
  zip.entries[0].name = "a/weights.pkl";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("not a file of torch.save"));
  EXPECT_THAT(refusalOf(zipOf("]").build()), HasSubstr("dictionary"));
  EXPECT_THAT(refusalOf("not a file"), HasSubstr("not a PyTorch file"));
  EXPECT_THAT(refusalOf(std::string(257, '\0') + "ustar" + std::string(300, '\0')), HasSubstr("tar file"));
}

// Transformer Engine's state: io.BytesIO objects, which torch.save writes as NEWOBJ and BUILD.
TEST(TorchFileTest, BytesIoBesideTensorsIsSkipped) {
  const std::string bytes = global("_codecs", "encode") + tuple({text("abc"), text("latin1")}) + "R";
  const std::string state = tuple({bytes, number(3), "N"});
  const std::string made = global("_io", "BytesIO") + ")\x81";
  const std::string weight = tensor(storage(kFloats, "0", 6), 0, {6}, {1});
  const auto read = [](const std::string& body) {
    const std::string file = zipOf(body).build();
    return TorchFile::parse(std::as_bytes(std::span(file)), "f").names();
  };
  EXPECT_THAT(read(dict({{"a._extra_state", made + state + "b"}, {"w", weight}})), ElementsAre("w"));
  EXPECT_THAT(errorOf([&] { read(dict({{"a", global("_io", "BytesIO") + tuple({bytes}) + "\x81"}, {"w", weight}})); }),
              HasSubstr("NEWOBJ"));
  EXPECT_THAT(errorOf([&] { read(dict({{"a", global("_io", "BytesIO") + tuple({bytes}) + "R"}, {"w", weight}})); }),
              HasSubstr("calls _io.BytesIO"));
  EXPECT_THAT(errorOf([&] { read(dict({{"a", bytes + state + "b"}, {"w", weight}})); }), HasSubstr("BUILD"));
}

TEST(TorchFileTest, FilesBeforeZipAreChecked) {
  const std::string body = dict({{"w", tensor(storage(kFloats, "k", 2, true), 0, {2}, {1})}});
  const std::string keys = "](" + text("k") + "e";
  const std::string data = littleEndian<uint64_t>(2) + floats({7, 8});
  EXPECT_THAT(valuesOf(parse(legacyOf(body, keys, data)).find("w")), ElementsAre(7, 8));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, littleEndian<uint64_t>(3) + floats({7, 8, 9}))), HasSubstr("3 elements"));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, data.substr(0, 12))), HasSubstr("cut off"));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, data.substr(0, 5))), HasSubstr("cut off"));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, data + "x")), HasSubstr("follow its last storage"));
  EXPECT_THAT(refusalOf(legacyOf(body, "]", "")), HasSubstr("storage 'k' is missing"));
  EXPECT_THAT(refusalOf(legacyOf(body, "](" + text("k") + text("k") + "e", data + data)),
              HasSubstr("list of storages"));
  EXPECT_THAT(refusalOf(legacyOf(body, "](" + text("z") + "e", data)), HasSubstr("list of storages"));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, data, dict({{"little_endian", "\x89"}}))), HasSubstr("big-endian"));
  EXPECT_THAT(refusalOf(legacyOf(body, keys, data, global("os", "system") + tuple({text("id")}) + "R")),
              HasSubstr("os.system"));
  EXPECT_THAT(refusalOf(pickled::whole(number(3))), HasSubstr("torch.save did not write"));
}

TEST(TorchFileTest, AHeaderOfAFileBeforeZipIsReadWithoutTheStorages) {
  constexpr int32_t kMany = 1 << 20;
  const std::string body = dict({{"w", tensor(storage(kFloats, "k", kMany, true), 0, {kMany / 2, 2}, {2, 1})}});
  const std::string values = littleEndian<uint64_t>(kMany) + std::string(kMany * sizeof(float), '\x7f');
  const std::string keys = "](" + text("k") + "e";
  size_t needed = 0;
  EXPECT_THAT(parseHeader(legacyOf(body, keys, values), &needed).find("w")->shape, ElementsAre(kMany / 2, 2));
  EXPECT_LT(needed, 16384u);
  EXPECT_THAT(errorOf([&] { parseHeader(legacyOf(body, keys, values.substr(1))); }), HasSubstr("cut off"));
  EXPECT_THAT(errorOf([&] { parseHeader(legacyOf(body, keys, values + "x")); }), HasSubstr("follow its last storage"));
  // A tenant's sparse file that only seems to be a pickle.
  needed = 0;
  EXPECT_THAT(errorOf([&] { parseHeader("\x80\x02" + std::string(size_t{64} << 20, '\0'), &needed); }),
              HasSubstr("unknown opcode"));
  EXPECT_LT(needed, 4096u);
}

// A text of the pickle with its number in the memo, and a reference to it.
std::string memoized(const std::string& text) {
  return "X" + littleEndian<uint32_t>(static_cast<uint32_t>(text.size())) + text + std::string("q\0", 2);
}
const std::string kMemoized = std::string("h\0", 2);

// Would take many minutes if every reference to the text were work for all of its bytes.
TEST(TorchFileTest, ALongTextThatIsOftenReferredToIsReadOnce) {
  const std::string long_text = memoized(std::string(size_t{16} << 20, '0'));
  std::string names = "}(" + long_text + "N";
  for (int i = 0; i < 600'000; ++i) names += kMemoized + "N";
  const std::string good = text("w") + tensor(storage(kFloats, "0", 6), 0, {6}, {1});
  EXPECT_EQ(parse(zipOf(names + good + "u").build()).names(), std::vector<std::string>{"w"});

  const auto storageOn = [](const std::string& device) {
    return "(" + text("storage") + kFloats + text("0") + device + number(6) + "tQ";
  };
  std::string storages = "}(" + text("s") + storageOn(memoized("cuda:" + std::string(size_t{16} << 20, '0')));
  for (int i = 0; i < 200'000; ++i) storages += text("s") + storageOn(kMemoized);
  EXPECT_THAT(refusalOf(zipOf(storages + good + "u").build()), HasSubstr("a storage's id is malformed"));
}

TEST(TorchFileTest, APickleOfMoreThan32MiBIsRefused) {
  const std::string body = dict({{std::string(size_t{33} << 20, 'k'), "N"}});
  EXPECT_THAT(refusalOf(zipOf(body).build()), HasSubstr("more than 32 MiB"));
  EXPECT_THAT(refusalOf(legacyOf(body, "]", "")), HasSubstr("more than 32 MiB"));
}

TEST(TorchFileTest, TensorsAreWhatTorchSaves) {
  const std::string s = storage(kFloats, "0", 6);
  const std::string hooks = global("collections", "OrderedDict") + ")R";
  const auto rebuild = [&](const std::string& function, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {s, number(0), numbers({6}), numbers({1})};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return global("torch._utils", function) + tuple(arguments) + "R";
  };
  EXPECT_EQ(refusalOfTensor(rebuild("_rebuild_tensor", {})), "");
  EXPECT_EQ(refusalOfTensor(rebuild("_rebuild_tensor_v2", {"\x88", hooks, "}"})), "");
  EXPECT_EQ(refusalOfTensor(rebuild("_rebuild_tensor_v3", {"\x89", hooks, global("torch", "int32")})), "");
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v3", {"\x89", hooks, global("torch", "int64")})),
              HasSubstr("beyond"));
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v3", {"\x89", hooks, "N"})), HasSubstr("dtype"));
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v3", {"\x88", hooks, global("torch", "int32")})),
              HasSubstr("requires_grad"));
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v2", {"\x89", "}"})), HasSubstr("hooks"));
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v2", {"\x89", hooks, dict({{"conj", "\x88"}})})),
              HasSubstr("conj"));
  EXPECT_THAT(refusalOfTensor(rebuild("_rebuild_tensor_v2", {})), HasSubstr("4 arguments"));
  const std::string whole = rebuild("_rebuild_tensor", {});
  EXPECT_EQ(refusalOfTensor(global("torch._utils", "_rebuild_parameter") + tuple({whole, "\x88", hooks}) + "R"), "");
  EXPECT_THAT(refusalOfTensor(global("torch._utils", "_rebuild_parameter") + tuple({"N", "\x88", hooks}) + "R"),
              HasSubstr("no tensor"));
}

class TorchSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "torch.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }
  void write(const std::string& name, const std::string& contents) { writeFileAtomically(dir_ / name, contents); }
  std::string refusal() {
    return errorOf([&] { HuggingFaceFiles::open(dir_); });
  }
  static std::string one(const std::string& name, int32_t offset) {
    return zipOf(dict({{name, tensor(storage(kFloats, "0", 6), offset, {1}, {1})}})).build();
  }
  fs::path dir_;
};

TEST_F(TorchSourceTest, SafetensorsComeFirst) {
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor pytorch_model.bin"));
  write("pytorch_model.bin", one("w", 4));
  EXPECT_THAT(valuesOf(HuggingFaceFiles::open(dir_).find("w")), ElementsAre(4));
  const std::vector<float> value = {9};
  SafetensorsWriter writer(dir_ / "model.safetensors", {{"w", DType::kFloat32, {1}}});
  writer.write("w", 0, std::as_bytes(std::span(value)));
  writer.finish();
  EXPECT_THAT(valuesOf(HuggingFaceFiles::open(dir_).find("w")), ElementsAre(9));
}

TEST_F(TorchSourceTest, ReadsShards) {
  write("pytorch_model-00001-of-00002.bin", one("a", 1));
  write(
      "pytorch_model.bin.index.json",
      R"({"metadata": {}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}})");
  EXPECT_THAT(refusal(), HasSubstr("pytorch_model-00002-of-00002.bin is missing"));
  write("pytorch_model-00002-of-00002.bin", one("b", 2));
  const HuggingFaceFiles source = HuggingFaceFiles::open(dir_);
  EXPECT_THAT(source.names(), ElementsAre("a", "b"));
  EXPECT_THAT(valuesOf(source.find("b")), ElementsAre(2));
  write("pytorch_model-00002-of-00002.bin", one("c", 2));
  EXPECT_THAT(refusal(), HasSubstr("tensor 'b' is not in pytorch_model-00002-of-00002.bin"));
  write("pytorch_model-00002-of-00002.bin", one("a", 2));
  EXPECT_THAT(refusal(), HasSubstr("is also in"));
}

}  // namespace
}  // namespace chorus
