#include "formats/npy.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/git_lfs.h"

namespace chorus {
namespace {

constexpr char kMagic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

struct Descr {
  std::string_view text;  // without the leading byte-order character
  DType dtype;
};
constexpr Descr kDescrs[] = {{"b1", DType::kBool},    {"u1", DType::kUint8},   {"i1", DType::kInt8},
                             {"i2", DType::kInt16},   {"i4", DType::kInt32},   {"i8", DType::kInt64},
                             {"f2", DType::kFloat16}, {"f4", DType::kFloat32}, {"f8", DType::kFloat64},
                             {"V2", DType::kBFloat16}};

// NumPy's own limit for files that are not trusted.
constexpr size_t kMaxHeaderBytes = 10000;
constexpr size_t kMaxNpyRank = 8;

// Parses the header: the repr of a Python dict with exactly three known keys. It is not a general Python parser.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  void read(NpyHeader& array) {
    if (!text_.starts_with('{')) corrupt();
    expect('{');
    bool have_descr = false, have_order = false, have_shape = false;
    const auto once = [this](bool& have) {
      if (have) corrupt();
      have = true;
    };
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        once(have_descr);
        array.dtype = dtypeOf(quoted());
      } else if (key == "fortran_order") {
        once(have_order);
        array.fortran_order = readOrder();
      } else if (key == "shape") {
        once(have_shape);
        array.shape = tuple();
      } else {
        corrupt();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at_ != text_.size() || !have_descr || !have_order || !have_shape) corrupt();
  }

 private:
  [[noreturn]] void corrupt() const { fail(ErrorCode::kCorrupt, "{}: malformed npy header", source_); }
  void skipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) corrupt();
  }
  std::string_view quoted() {
    expect('\'');
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) corrupt();
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end + 1;
    return word;
  }
  bool readOrder() {
    skipSpace();
    const bool fortran = text_.substr(at_, 4) == "True";
    if (!fortran && text_.substr(at_, 5) != "False") corrupt();
    at_ += fortran ? 4 : 5;
    return fortran;
  }
  DType dtypeOf(std::string_view descr) const {
    // NumPy reads '|' and a missing byte order as the machine's own order, which is little-endian on all our platforms.
    const bool ordered = descr.starts_with('<') || descr.starts_with('=') || descr.starts_with('|');
    for (const Descr& known : kDescrs) {
      if (known.text == descr.substr(ordered ? 1 : 0)) return known.dtype;
    }
    fail(ErrorCode::kUnsupported, "{}: numpy data type '{}' not supported", source_, descr);
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> extents;
    expect('(');
    while (!accept(')')) {
      skipSpace();
      int64_t extent = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      // Python's integers have no leading zero, and NumPy refuses negative extents.
      if (error != std::errc() || *begin == '-' || (*begin == '0' && end - begin > 1) ||
          extents.size() >= kMaxNpyRank) {
        corrupt();
      }
      at_ += static_cast<size_t>(end - begin);
      extents.push_back(extent);
      if (!accept(',')) {
        if (extents.size() == 1) corrupt();  // in Python, (4) is a number and only (4,) is a tuple
        expect(')');
        break;
      }
    }
    return extents;
  }

  std::string_view text_;
  std::string_view source_;
  size_t at_ = 0;
};
}  // namespace

NpyHeader parseNpyHeader(std::span<const std::byte> begin, std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.size() < 10 || text.substr(0, 6) != std::string_view(kMagic, 6)) {
    refuseGitLfsPointer(text, source);
    fail(ErrorCode::kCorrupt, "{}: not an npy file", source);
  }
  const int version = static_cast<uint8_t>(text[6]);
  if (version < 1 || version > 3 || text[7] != 0) {
    fail(ErrorCode::kUnsupported, "{}: npy version {}.{}", source, version, static_cast<uint8_t>(text[7]));
  }
  const size_t prefix = version == 1 ? 10 : 12;
  if (text.size() < prefix) fail(ErrorCode::kCorrupt, "{}: the npy header is cut off", source);
  uint32_t header_size = 0;
  std::memcpy(&header_size, text.data() + 8, version == 1 ? 2 : 4);
  if (header_size > kMaxHeaderBytes) {
    fail(ErrorCode::kCorrupt, "{}: an npy header of {} bytes, more than {}", source, header_size, kMaxHeaderBytes);
  }
  if (header_size > text.size() - prefix) fail(ErrorCode::kCorrupt, "{}: the npy header is cut off", source);

  NpyHeader header;
  NpyHeaderReader(text.substr(prefix, header_size), source).read(header);
  header.header_bytes = prefix + header_size;
  const std::string name(source);
  header.data_bytes =
      checkedMul(checkedElementCount(header.shape, name.c_str()), dtypeSize(header.dtype), name.c_str());
  return header;
}

NpyArray parseNpy(std::span<const std::byte> bytes, std::string_view source) {
  NpyHeader header = parseNpyHeader(bytes, source);
  if (header.fortran_order) {
    fail(ErrorCode::kUnsupported, "{}: Fortran-ordered array; save it with numpy.ascontiguousarray", source);
  }
  const std::span<const std::byte> data = bytes.subspan(header.header_bytes);
  if (data.size() != header.data_bytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes of data where the shape needs {}", source, data.size(), header.data_bytes);
  }
  return {header.dtype, std::move(header.shape), data};
}

std::string npyHeader(DType dtype, std::span<const int64_t> shape) {
  std::string_view descr;
  for (const Descr& known : kDescrs) {
    if (known.dtype == dtype) descr = known.text;
  }
  const char order = dtypeSize(dtype) == 1 || dtype == DType::kBFloat16 ? '|' : '<';
  std::string extents;
  for (const int64_t extent : shape) extents += std::to_string(extent) + ", ";
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  if (shape.size() == 1) extents.pop_back();
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, descr, extents);
  // NumPy pads the header so that the first extent can grow to 21 digits in place, then adds at least one more byte.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  constexpr size_t kPrefix = 10, kAlignment = 64;
  text.append(kAlignment - (kPrefix + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string out(kMagic, 6);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

std::string npyBytes(DType dtype, std::span<const int64_t> shape, const void* data) {
  const uint64_t size = checkedMul(checkedElementCount(shape, "npy"), dtypeSize(dtype), "npy");
  std::string out = npyHeader(dtype, shape);
  out.append(static_cast<const char*>(data), size);
  return out;
}

}  // namespace chorus
