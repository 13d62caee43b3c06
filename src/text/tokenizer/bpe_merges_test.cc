#include "text/tokenizer/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

namespace chorus {
namespace {

using Pair = std::pair<int32_t, int32_t>;
using Table = std::map<Pair, std::pair<uint32_t, int32_t>>;  // rank and id

// Applies the lowest rank, and the leftmost of equal ones, until none is left.
std::vector<int32_t> mergeOneByOne(const Table& table, std::vector<int32_t> symbols) {
  while (true) {
    std::optional<size_t> best;
    uint32_t lowest = 0;
    for (size_t at = 0; at + 1 < symbols.size(); ++at) {
      const auto it = table.find({symbols[at], symbols[at + 1]});
      if (it == table.end() || (best && it->second.first >= lowest)) continue;
      best = at;
      lowest = it->second.first;
    }
    if (!best) return symbols;
    symbols[*best] = table.at({symbols[*best], symbols[*best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
}

std::vector<int32_t> merged(const Table& table, std::vector<int32_t> symbols) {
  BpeMerges merges;
  for (const auto& [pair, merge] : table) merges.add(pair.first, pair.second, merge.first, merge.second);
  WorkMeter meter;
  Scratch scratch(Scratch::limitFor(symbols.size()), meter);
  EncodeWork work{meter, scratch};
  symbols.resize(merges.apply(symbols, work));
  return symbols;
}

// Merges of random pairs with random ranks: a merge may make another of a lower or an equal rank possible.
TEST(BpeMergesTest, EqualMergesOneByOne) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int32_t letters = 1 + static_cast<int32_t>(random() % 3), ids = letters + static_cast<int32_t>(random() % 8);
    Table table;
    for (int i = 0; i < 12; ++i) {
      const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(ids)); };
      const Pair pair{any(), any()};
      const uint32_t rank = random() % 10;
      table[pair] = {rank, any()};
    }
    // Long rows have passes of their own.
    const size_t size = round % 20 == 0 ? 5000 : random() % 60;
    std::vector<int32_t> symbols(size);
    const bool one = random() % 2 == 0;
    for (int32_t& symbol : symbols) {
      symbol = one && random() % 50 != 0 ? 0 : static_cast<int32_t>(random() % static_cast<uint32_t>(letters));
    }
    ASSERT_EQ(merged(table, symbols), mergeOneByOne(table, symbols)) << round;
  }
}

// Doubling tokens of one letter, as every vocabulary has them for spaces.
TEST(BpeMergesTest, ARunOfOneSymbolIsMergedInPasses) {
  BpeMerges merges;
  for (int32_t id = 0; id < 5; ++id) merges.add(id, id, static_cast<uint32_t>(id), id + 1);
  const auto workFor = [&](size_t size) {
    std::vector<int32_t> symbols(size, 0);
    WorkMeter meter;
    Scratch scratch(Scratch::limitFor(size), meter);
    EncodeWork work{meter, scratch};
    const size_t left = merges.apply(symbols, work);
    EXPECT_EQ(left, size / 32);
    return meter.spent();
  };
  EXPECT_LT(workFor(size_t{1} << 20), (size_t{1} << 20) * 110);
  EXPECT_LT(workFor(size_t{1} << 20), workFor(size_t{1} << 16) * 17);
}

}  // namespace
}  // namespace chorus
