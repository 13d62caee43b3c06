// Arbitrary bytes are refused with an Error or give members that lie within the archive and do not have each other's
// names. Reading only the parts that are asked for gives the same result. The input is read as it is, and, behind a
// correct checksum in its first header, once more, because random bytes rarely have one.
// parses: src/formats/tar_archive.cc
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/tar_archive.h"
#include "fuzz/fuzz_target.h"

// libarchive allocates its state for each archive, and up to 1 MiB for a pax header or a GNU name whose size is only
// declared; the input is read up to four times.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 3000, .bytes = 4 << 20};

namespace {

constexpr size_t kBlock = 512, kSumAt = 148, kSumBytes = 8;

std::optional<std::vector<chorus::TarMember>> read(const chorus::PartialBytes& bytes) {
  try {
    return chorus::readTar(bytes, "fuzz");
  } catch (const chorus::Error&) {
    return std::nullopt;
  }
}

void check(const std::vector<uint8_t>& data) {
  const auto bytes = std::as_bytes(std::span(data));
  const auto members = read(chorus::PartialBytes(bytes));
  std::vector<std::byte> memory(bytes.size());
  const auto need = [&](size_t at, size_t size) {
    if (size > 0) std::memcpy(memory.data() + at, bytes.data() + at, size);
  };
  const auto again = read(chorus::PartialBytes(memory, need));
  if (again.has_value() != members.has_value()) std::abort();
  if (!members) return;
  std::set<std::string> names;
  for (size_t i = 0; i < members->size(); ++i) {
    const chorus::TarMember& member = (*members)[i];
    const std::string slashed = "/" + member.name + "/";
    if (member.name.empty() || slashed.find("//") != std::string::npos || slashed.find("/../") != std::string::npos) {
      std::abort();
    }
    if (!names.insert(member.name).second) std::abort();
    if (member.name != (*again)[i].name || member.offset != (*again)[i].offset) std::abort();
    volatile std::byte sink{};
    for (const std::byte b : bytes.subspan(member.offset, member.size)) sink = b;
    static_cast<void>(sink);
    if (member.offset > bytes.size() || member.size > bytes.size() - member.offset) std::abort();
  }
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  check(bytes);
  if (size < kBlock) return;
  std::memset(bytes.data() + kSumAt, ' ', kSumBytes);
  unsigned sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += bytes[i];
  char digits[kSumBytes] = {};
  std::snprintf(digits, sizeof digits, "%06o", sum & 0777777u);
  std::memcpy(bytes.data() + kSumAt, digits, kSumBytes);
  check(bytes);
}
