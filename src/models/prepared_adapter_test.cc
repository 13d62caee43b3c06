#include "models/prepared_adapter.h"

#include <gtest/gtest.h>

#include <vector>

namespace chorus {
namespace {

TEST(ComposedHash, DependsOnTheMembersTheirWeightsAndTheirOrder) {
  const auto named = [](const char* hash) {
    return std::make_shared<PreparedAdapter>(PreparedAdapter{.content_hash = hash});
  };
  const auto a = named("a"), b = named("b"), ab = named("ab");
  const std::vector<std::vector<WeightedAdapter>> different = {{{a, 1.0f}},
                                                               {{a, 0.5f}},
                                                               {{b, 1.0f}},
                                                               {{a, 1.0f}, {b, 1.0f}},
                                                               {{b, 1.0f}, {a, 1.0f}},
                                                               {{a, 1.0f}, {b, 0.5f}},
                                                               {{a, 1.0f}, {a, 1.0f}},
                                                               {{ab, 1.0f}},
                                                               {{a, 0.0f}},
                                                               {{a, -0.0f}}};
  for (size_t i = 0; i < different.size(); ++i) {
    EXPECT_EQ(composedHash(different[i]), composedHash(different[i]));
    for (size_t j = 0; j < i; ++j) EXPECT_NE(composedHash(different[i]), composedHash(different[j])) << i << " " << j;
  }
}

}  // namespace
}  // namespace chorus
