#include "safetensors_edit.h"

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "formats/safetensors.h"

namespace chorus::test {
namespace {
constexpr size_t kMostBytes = size_t{64} << 20;
}

void editHeader(const std::filesystem::path& file, const std::function<void(OrderedJson& header)>& edit) {
  const std::string bytes = readFile(file, kMostBytes);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  OrderedJson header = OrderedJson::parse(bytes.substr(sizeof size, size));
  const std::string data = bytes.substr(sizeof size + size);
  edit(header);
  const std::string text = header.dump();
  size = text.size();
  std::string length(sizeof size, '\0');
  std::memcpy(length.data(), &size, sizeof size);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << length << text << data;
}

void dropTensor(const std::filesystem::path& file, const std::string& name) {
  const Safetensors whole = Safetensors::open(file);
  std::vector<SafetensorsWriter::Declaration> kept;
  for (const std::string& tensor : whole.names()) {
    if (tensor != name) kept.push_back({tensor, whole.find(tensor)->dtype, whole.find(tensor)->shape});
  }
  SafetensorsWriter writer(file, kept);
  for (const auto& tensor : kept) writer.write(tensor.name, 0, whole.find(tensor.name)->bytes);
  writer.finish();
}

void truncateFile(const std::filesystem::path& file, double share) {
  const auto size = static_cast<double>(std::filesystem::file_size(file));
  std::filesystem::resize_file(file, static_cast<uintmax_t>(size * share));
}

}  // namespace chorus::test
