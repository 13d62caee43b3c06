// Reads files the way the program does and says what it read, for mutations.py to compare with the reference readers.
// Each request on standard input is a line "KIND BYTES" and that many bytes; each answer one line:
//   MICROSECONDS PEAK_KILOBYTES ok DIGEST      or      MICROSECONDS PEAK_KILOBYTES error TEXT
// The digest is a SHA-256 of the content, spelled so that Python makes the same one. The peak is the process's, reset
// before each file.
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "checkpoint/config.h"
#include "engine/build_config.h"
#include "engine/engine_file.h"
#include "formats/flax_file.h"
#include "formats/npy.h"
#include "formats/npz.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "lora/peft_config.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_schema.h"

namespace chorus {
namespace {

using Bytes = std::span<const std::byte>;

std::string hashOf(Bytes bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string tensorLine(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes bytes) {
  return fmt::format("{} {}{} {}\n", name, dtypeName(dtype), shapeText(shape), hashOf(bytes));
}

std::string tensorsDigest(const TensorFile& file) {
  std::map<std::string, std::string> lines;
  for (const std::string& name : file.names()) {
    const TensorView& tensor = *file.find(name);
    lines[name] = tensorLine(name, tensor.dtype, tensor.shape, tensor.bytes);
  }
  Sha256 hash;
  for (const auto& [name, line] : lines) hash.update(line);
  return hash.hex();
}

std::string npyDigest(Bytes bytes) {
  const NpyArray array = parseNpy(bytes, "file");
  Sha256 hash;
  hash.update(tensorLine("", array.dtype, array.shape, array.data));
  return hash.hex();
}

std::string linesDigest(const std::map<std::string, std::string>& lines) {
  Sha256 hash;
  for (const auto& [name, line] : lines) hash.update(line);
  return hash.hex();
}

// The values in the order in which they are stored.
std::string npzDigest(Bytes bytes) {
  const NpzFile file = NpzFile::parse(bytes, "file");
  std::map<std::string, std::string> lines;
  for (const NpzArray& array : file.arrays()) {
    std::string values;
    file.unpack(array, [&](Bytes piece) { values.append(reinterpret_cast<const char*>(piece.data()), piece.size()); });
    const std::string name = array.name + (array.header.fortran_order ? " F" : " C");
    lines[array.name] = tensorLine(name, array.header.dtype, array.header.shape, std::as_bytes(std::span(values)));
  }
  return linesDigest(lines);
}

std::string flaxDigest(Bytes bytes) {
  std::map<std::string, std::string> lines;
  for (const FlaxArray& array : parseFlaxFile(bytes, "file")) {
    std::string values;
    for (const Bytes chunk : array.chunks) values.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    lines[array.name] = tensorLine(array.name, array.dtype, array.shape, std::as_bytes(std::span(values)));
  }
  return linesDigest(lines);
}

std::string_view textOf(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
Json jsonOf(Bytes bytes) { return parseJson(textOf(bytes), "file"); }

// A digest for each text and id of references.py.
std::string tokenizerDigest(Bytes bytes) {
  const auto tokenizer = Tokenizer::fromJson(parseTokenizerJson(textOf(bytes), "file"), Json(), "file");
  std::string digest;
  const auto add = [&](const std::string& item) {
    digest += (digest.empty() ? "" : ",") + hashOf(std::as_bytes(std::span(item))).substr(0, 12);
  };
  for (const char* text :
       {"", " ", "Hello world", "the quick  brown\n\nfox's 12345 jumps", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80",
        "<s>x</s><|endoftext|>", "def f(x):\n    return x + 1"}) {
    const auto ids = tokenizer->encode(text, true);
    add(fmt::format("{}\n{}", fmt::join(ids, " "), tokenizer->decode(ids, false)));
  }
  for (const int32_t id : {0, 1, 2, 5, 17, 40, 99, 200})
    add(tokenizer->decode(std::vector<int32_t>{id, id + 1}, false));
  return digest;
}

const std::map<std::string, std::function<std::string(Bytes)>>& readers() {
  static const std::map<std::string, std::function<std::string(Bytes)>> kReaders = {
      {"safetensors", [](Bytes b) { return tensorsDigest(Safetensors::parse(b, "file")); }},
      {"torch", [](Bytes b) { return tensorsDigest(TorchFile::parse(b, "file")); }},
      {"npy", npyDigest},
      {"npz", npzDigest},
      {"flax", flaxDigest},
      {"tokenizer", tokenizerDigest},
      {"adapter_config",
       [](Bytes b) {
         const PeftConfig config = PeftConfig::parse(textOf(b), "file");
         return fmt::format("{} {}", config.rankOf("model.layers.1.self_attn.q_proj"),
                            config.modules.includes("model.layers.1.self_attn.q_proj"));
       }},
      {"checkpoint_config", [](Bytes b) { return ModelConfig::fromJson(jsonOf(b), "file").architecture; }},
      {"build_config", [](Bytes b) { return std::to_string(BuildConfig::fromJson(jsonOf(b), "file").max_batch_size); }},
      {"engine_file", [](Bytes b) { return std::to_string(parseEngineFile(b, "file", weightPacker("cpu")).size()); }}};
  return kReaders;
}

long peakKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  }
  return 0;
}

void answer(const std::string& kind, const std::string& contents) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const auto begin = std::chrono::steady_clock::now();
  std::string result;
  try {
    result = "ok " + readers().at(kind)(std::as_bytes(std::span(contents)));
  } catch (const Error& e) {
    const std::string text = e.what();
    result = text.empty() || text.find('\n') != std::string::npos ? "several lines" : "error " + text;
  }
  const auto end = std::chrono::steady_clock::now();
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count();
  std::cout << time << ' ' << peakKilobytes() << ' ' << result << std::endl;
}
}  // namespace
}  // namespace chorus

int main() {
  chorus::log::set_level(chorus::log::level::off);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string kind;
    size_t size = 0;
    words >> kind >> size;
    std::string contents(size, '\0');
    if (!std::cin.read(contents.data(), static_cast<std::streamsize>(size))) return 1;
    chorus::answer(kind, contents);
  }
  return 0;
}
