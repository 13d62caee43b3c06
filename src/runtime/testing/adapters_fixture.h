// CoreFixture with requests that name an adapter by a task, or bring its tensors.
#pragma once

#include <utility>

#include "runtime/testing/core_fixture.h"

namespace chorus::testing {

class AdaptersFixture : public CoreFixture {
 protected:
  static executor::Request withAdapter(executor::VecTokens prompt, int32_t max_tokens, uint64_t task_id) {
    executor::Request r = request(std::move(prompt), max_tokens);
    r.setLoraConfig(executor::LoraConfig(task_id));
    return r;
  }
  // A request with tensors that the fixture's loader reads as content "tensors<number>".
  static executor::Request withTensors(executor::VecTokens prompt, int32_t max_tokens, uint64_t task_id,
                                       int32_t number) {
    const int32_t rows[] = {1, 0, 2};
    executor::Request r = request(std::move(prompt), max_tokens);
    r.setLoraConfig(executor::LoraConfig(task_id, executor::Tensor::copyOf(executor::DataType::kINT32, &number, {1, 1}),
                                         executor::Tensor::copyOf(executor::DataType::kINT32, rows, {1, 3})));
    return r;
  }
};

}  // namespace chorus::testing
