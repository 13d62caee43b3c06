// Builds tar archives block by block and gzip files, so that tests can create archives that no packer writes.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

struct TestTar {
  struct Entry {
    std::string name;
    std::string bytes = {};
    char type = '0';                    // a regular file; '1' and '2' links, '5' a directory
    std::string link = {};              // target of a link
    std::optional<uint64_t> size = {};  // in the header, if it differs from that of `bytes`
  };
  std::vector<Entry> entries;

  static constexpr size_t kBlock = 512;

  static std::string padded(std::string bytes) {
    bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock, '\0');
    return bytes;
  }

  static std::string header(const Entry& entry) {
    std::string block(kBlock, '\0');
    const auto put = [&](size_t at, std::string_view text) {
      std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, entry.name.substr(0, 100));
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", entry.size.value_or(entry.bytes.size())));
    put(136, "00000000000");
    put(148, "        ");
    block[156] = entry.type;
    put(157, entry.link);
    put(257, std::string_view("ustar\00000", 8));
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum));
    block[154] = '\0';
    block[155] = ' ';
    return block;
  }

  // A pax header with this record, such as {"path", NAME}, for the entry that follows.
  static Entry pax(std::string_view key, std::string_view value) {
    const size_t rest = key.size() + value.size() + 3;
    size_t length = rest + 1;
    while (std::to_string(length).size() + rest != length) ++length;
    return {.name = "PaxHeaders/x", .bytes = fmt::format("{} {}={}\n", length, key, value), .type = 'x'};
  }

  std::string build() const {
    std::string out;
    for (const Entry& entry : entries) out += header(entry) + padded(entry.bytes);
    return out + std::string(2 * kBlock, '\0');
  }
};

inline std::string gzipped(std::string_view bytes) {
  std::string out(bytes.size() + bytes.size() / 64 + 1024, '\0');
  size_t used = 0;
  archive* const writer = archive_write_new();
  archive_write_add_filter_gzip(writer);
  archive_write_set_format_raw(writer);
  archive_write_set_bytes_per_block(writer, 0);
  archive_write_open_memory(writer, out.data(), out.size(), &used);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(writer, entry);
  archive_write_data(writer, bytes.data(), bytes.size());
  archive_entry_free(entry);
  archive_write_close(writer);
  archive_write_free(writer);
  out.resize(used);
  return out;
}

}  // namespace chorus
