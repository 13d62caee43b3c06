// Interface of a fuzz target. fuzz_entry.cc calls it for every input and checks the input's cost.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorus::test {

// Cost that an input may have whatever its length. Beyond it every byte of input may cost one microsecond of processor
// time and 64 bytes of memory held at once.
struct FixedCost {
  double microseconds = 0;  // in a release build
  int64_t bytes = 0;
};

// Defined by each target, with the reason for the values.
extern const FixedCost kFixedCost;
// Lets the current input hold more memory than its bytes and kFixedCost allow. For targets in which a few bytes may ask
// for many of something, up to a limit that the parser checks. bytes: of all those things. May be called once for an
// input.
void allowBytes(int64_t bytes);
// Handles one input; aborts when it finds a fault. An input that seems too expensive is run several times.
void fuzzOne(const uint8_t* data, size_t size);

// The highest cost of any input so far, beyond the share of its bytes.
FixedCost dearestInput();

}  // namespace chorus::test
