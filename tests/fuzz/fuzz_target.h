// What a fuzz target defines; fuzz_entry.cc calls it for every input and judges what the input costs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorus::test {

// What an input may cost whatever its length is; beyond it every byte of input may cost a microsecond of processor time
// and 64 bytes of memory held at once.
struct FixedCost {
  double microseconds = 0;  // in a release build
  int64_t bytes = 0;
};

// A target states its own, with the reason for it.
extern const FixedCost kFixedCost;
// Handles one input; aborts when something is wrong. May be called several times for an input that seems too dear.
void fuzzOne(const uint8_t* data, size_t size);

// The dearest of all inputs so far, beyond what its bytes account for.
FixedCost dearestInput();

}  // namespace chorus::test
