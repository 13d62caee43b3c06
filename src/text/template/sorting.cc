#include <algorithm>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// A merge sort, because comparing can throw (values that have no order), which must not happen inside std::sort.
void sortPairs(Runtime& rt, std::span<Dict::Entry> pairs, bool reverse) {
  if (pairs.size() < 2) return;
  rt.charge(pairs.size_bytes());
  std::span<Dict::Entry> from = pairs, to = rt.objects().array<Dict::Entry>(pairs.size());
  for (size_t width = 1; width < pairs.size(); width *= 2) {
    for (size_t low = 0; low < from.size(); low += 2 * width) {
      const size_t middle = std::min(low + width, from.size()), high = std::min(low + 2 * width, from.size());
      rt.charge((high - low) * sizeof(Dict::Entry));
      size_t a = low, b = middle;
      for (size_t out = low; out < high; ++out) {
        const bool right =
            a == middle ||
            (b < high && (reverse ? lessThan(rt, from[a].key, from[b].key) : lessThan(rt, from[b].key, from[a].key)));
        to[out] = from[right ? b++ : a++];
      }
    }
    std::swap(from, to);
  }
  if (from.data() != pairs.data()) std::copy(from.begin(), from.end(), pairs.begin());
}

}  // namespace chorus::tmpl
