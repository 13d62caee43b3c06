// Reads lora-convert's .npy files: int32, float16 or float32, and its bfloat16, which is 2 bytes without a type.
#pragma once

#include <cstdint>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string>

#include "chorus/executor.h"

inline chorus::executor::Tensor readNpy(std::string const& path) {
  namespace tle = chorus::executor;
  std::ifstream file(path, std::ios::binary);
  char magic[8] = {};
  if (!file.read(magic, sizeof magic) || std::string(magic, 6) != "\x93NUMPY") {
    throw std::runtime_error(path + " is not an .npy file");
  }
  std::uint32_t length = 0;
  file.read(reinterpret_cast<char*>(&length), magic[6] == 1 ? 2 : 4);
  if (!file || length > 65536) throw std::runtime_error(path + " has no .npy header");
  std::string header(length, ' ');
  file.read(header.data(), length);

  std::smatch type;
  std::smatch shape;
  if (!std::regex_search(header, type, std::regex("'descr': *'([^']*)'")) ||
      !std::regex_search(header, shape, std::regex("'shape': *\\(([^)]*)\\)")) ||
      header.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error(path + " is not a row-major array");
  }
  tle::DataType dataType = tle::DataType::kUNKNOWN;
  if (type[1] == "<i4") dataType = tle::DataType::kINT32;
  if (type[1] == "<f2") dataType = tle::DataType::kFP16;
  if (type[1] == "<f4") dataType = tle::DataType::kFP32;
  if (type[1] == "|V2" || type[1] == "<V2") dataType = tle::DataType::kBF16;
  std::vector<std::int64_t> dims;
  std::string const extents = shape[1];
  std::regex const number("[0-9]+");
  for (std::sregex_iterator it(extents.begin(), extents.end(), number), end; it != end; ++it) {
    dims.push_back(std::stoll(it->str()));
  }
  // The Executor takes two dimensions; the files have a leading third one of size 1.
  if (dims.size() == 3 && dims[0] == 1) dims.erase(dims.begin());
  auto tensor = tle::Tensor::cpu(dataType, tle::Shape(dims.data(), dims.size()));
  file.read(static_cast<char*>(tensor.getData()), static_cast<std::streamsize>(tensor.getSizeInBytes()));
  if (!file) throw std::runtime_error(path + " is truncated");
  return tensor;
}
