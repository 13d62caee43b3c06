#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "text/template/runtime.h"
#include "text/template/wide_integer.h"

namespace chorus::tmpl {
namespace {

// Dicts with at most this many entries have no index and are searched linearly.
constexpr size_t kWithoutIndex = 8;

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD6E8FEB86659FD93ULL);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

std::optional<int64_t> wholeNumber(const Value& v) {
  if (v.isInteger()) return v.integer();
  const double d = v.number();
  if (d == std::floor(d) && d >= -0x1p63 && d < 0x1p63) return static_cast<int64_t>(d);
  return std::nullopt;
}

// Equal keys have equal hashes. Throws for values that can't be keys.
uint64_t hashOf(Runtime& rt, const Value& v) {
  rt.charge(sizeof(Value));
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<uint64_t>(v.kind());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: {
      const std::optional<int64_t> whole = wholeNumber(v);
      if (whole) return mix(1, static_cast<uint64_t>(*whole));
      // A float and a wide integer of equal value are the same key.
      const std::string digits = wideDigitsOf(rt, v.number());
      return digits.empty() ? mix(1, std::hash<double>()(v.number())) : mix(2, std::hash<std::string>()(digits));
    }
    case Kind::kString:
    case Kind::kWideInt:
      rt.charge(v.string().size());
      return mix(2, std::hash<std::string_view>()(v.string()));
    case Kind::kSequence:
      if (v.sequence().flavor() == Sequence::Flavor::kTuple) {
        rt.checkStack();
        uint64_t hash = 3;
        for (const Value& item : v.sequence().items()) hash = mix(hash, hashOf(rt, item));
        return hash;
      }
      [[fallthrough]];
    case Kind::kDict:
      raise("unhashable type: '{}'", typeName(v));
    default:
      return mix(4, reinterpret_cast<uintptr_t>(v.identity()));
  }
}

// Both values must be possible keys, as hashOf() checks.
bool sameKey(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(sizeof(Value));
  if (a.isNumber() && b.isNumber()) {
    const std::optional<int64_t> x = wholeNumber(a), y = wholeNumber(b);
    if (x || y) return x == y;
    return a.number() == b.number() || (std::isnan(a.number()) && std::isnan(b.number()));
  }
  if (a.isWideInteger() != b.isWideInteger()) return equals(rt, a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kWideInt:
      if (a.string().size() != b.string().size()) return false;
      rt.charge(a.string().size());
      return a.string() == b.string();
    case Kind::kSequence: {
      const auto x = a.sequence().items(), y = b.sequence().items();
      if (x.data() == y.data() && x.size() == y.size()) return true;
      if (x.size() != y.size()) return false;
      rt.checkStack();
      for (size_t i = 0; i < x.size(); ++i) {
        if (!sameKey(rt, x[i], y[i])) return false;
      }
      return true;
    }
    default:
      return a.identity() == b.identity();
  }
}
}  // namespace

Dict* Dict::make(Runtime& rt, size_t room) {
  rt.charge(sizeof(Dict));
  Dict* const dict = rt.objects().make<Dict>(false);
  dict->reserve(rt, room);
  return dict;
}

Dict* Dict::makeNamespace(Runtime& rt) {
  rt.charge(sizeof(Dict));
  return rt.objects().make<Dict>(true);
}

Dict* Dict::copy(Runtime& rt, const Dict& from) {
  Dict* const dict = make(rt, from.size());
  for (const auto& [key, value] : from.entries()) dict->set(rt, key, value);
  return dict;
}

void Dict::becomeNamespace() {
  is_namespace_ = true;
  depth_ = 0;
}

void Dict::reserve(Runtime& rt, size_t room) {
  if (room <= capacity_) return;
  if (room > UINT32_MAX / 4) raise("a dict of {} entries is too large", room);
  rt.charge(room * sizeof(Entry));
  const std::span<Entry> entries = rt.objects().array<Entry>(room);
  std::copy(entries_, entries_ + size_, entries.begin());
  entries_ = entries.data();
  capacity_ = static_cast<uint32_t>(room);
  if (room <= kWithoutIndex) return;
  index_ = rt.objects().array<uint32_t>(std::bit_ceil(room * 2));
  for (size_t i = 0; i < size_; ++i) addToIndex(rt, i);
}

void Dict::addToIndex(Runtime& rt, size_t entry) {
  size_t at = hashOf(rt, entries_[entry].key) & (index_.size() - 1);
  while (index_[at] != 0) {
    rt.charge(sizeof(uint32_t));
    at = (at + 1) & (index_.size() - 1);
  }
  index_[at] = static_cast<uint32_t>(entry + 1);
}

// Returns size_ if the key does not exist.
size_t Dict::position(Runtime& rt, const Value& key) const {
  if (index_.empty()) {
    if (!key.isString()) hashOf(rt, key);  // throws if it can't be a key
    for (size_t i = 0; i < size_; ++i) {
      if (sameKey(rt, entries_[i].key, key)) return i;
    }
    return size_;
  }
  for (size_t at = hashOf(rt, key) & (index_.size() - 1); index_[at] != 0; at = (at + 1) & (index_.size() - 1)) {
    if (sameKey(rt, entries_[index_[at] - 1].key, key)) return index_[at] - 1;
  }
  return size_;
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
  const size_t at = position(rt, key);
  return at == size_ ? nullptr : &entries_[at].value;
}

void Dict::set(Runtime& rt, const Value& key, const Value& value) {
  if (!is_namespace_) {
    const int below = std::max(key.depth(), value.depth());
    if (below + 1 > kMaxValueDepth) raise("values nest deeper than {} levels", kMaxValueDepth);
    depth_ = std::max(depth_, below + 1);
  }
  const size_t at = position(rt, key);
  if (at < size_) {
    entries_[at].value = value;
    return;
  }
  if (size_ == capacity_) reserve(rt, std::max<size_t>(2, size_t{capacity_} * 2));
  entries_[size_] = {key, value};
  ++size_;
  if (!index_.empty()) addToIndex(rt, size_ - 1);
}

}  // namespace chorus::tmpl
