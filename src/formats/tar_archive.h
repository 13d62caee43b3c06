// Finds the members of an uncompressed tar archive, which are then read in place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/partial_bytes.h"

namespace chorus {

struct TarMember {
  std::string name;     // components separated by "/", without "." components
  uint64_t offset = 0;  // of its bytes in the archive
  uint64_t size = 0;    // bytes
};

// Reads the headers of the members; regular files are returned in the order of the archive, directories are skipped.
// Accepts ustar, pax and GNU tar. Asks `bytes` only for the headers and for up to kTarBlock bytes behind each. Throws
// Error, with the name of `source`:
//   kCorrupt      no tar archive, a damaged header, a member that is larger than the archive, a name that occurs twice,
//                 an absolute name or one with "..", more than kMaxTarMembers members
//   kUnsupported  a link, a device or another special file, a sparse file, a name that is not plain text
std::vector<TarMember> readTar(const PartialBytes& bytes, std::string_view source);

inline constexpr size_t kMaxTarMembers = size_t{1} << 16;
inline constexpr size_t kTarBlock = 4096;

// The member of this name; nullptr if there is none.
const TarMember* findMember(const std::vector<TarMember>& members, std::string_view name);

}  // namespace chorus
