// Flax's files of parameters (flax.serialization.to_bytes, flax_model.msgpack): a tree of maps in MessagePack whose
// leaves are arrays.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace chorus {

struct FlaxArray {
  std::string name;  // the keys that lead to it, joined by '/'
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  // The array's elements in row-major order, as views of the file. Flax stores an array of more than 1 GiB in several
  // chunks.
  std::vector<std::span<const std::byte>> chunks;
};

// Parses a file that the caller keeps alive; source names it in errors. Leaves that are no arrays (counters, strings)
// are skipped. Memory is bounded by the file's size. Throws Error:
//   kCorrupt      bytes that are not MessagePack, or arrays whose sizes contradict their shapes
//   kUnsupported  a root that is no map, an extension type that Flax does not define, a dtype that DType lacks, maps in
//                 more than 32 levels, or a name of more than 256 bytes
std::vector<FlaxArray> parseFlaxFile(std::span<const std::byte> bytes, std::string_view source);

}  // namespace chorus
