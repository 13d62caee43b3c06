#include "comm/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/error.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

// Body of one rank's thread in a test.
using RankWork = std::function<void(Communicator& comm, Backend& backend)>;

// Runs `work` on one thread per rank. Returns the error line of each rank; empty: no error.
std::vector<std::string> onAllRanks(LocalGroup& group, int32_t size, const RankWork& work) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = createBackend({.name = "reference"});
      const auto comm = group.communicator(rank, *backend);
      try {
        work(*comm, *backend);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
        group.abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Values of spin_us: sleep at once, or spin first.
constexpr int kSpins[] = {0, 50};

DeviceBuffer uploaded(const std::vector<float>& values, Backend& backend) {
  DeviceBuffer buffer = backend.allocate(values.size() * sizeof(float));
  backend.upload(buffer.data(), values.data(), values.size() * sizeof(float), {});
  return buffer;
}
std::vector<float> downloaded(const DeviceBuffer& buffer, size_t count, Backend& backend) {
  std::vector<float> values(count);
  backend.download(values.data(), buffer.data(), count * sizeof(float), {});
  return values;
}

Matrix rowOf(const DeviceBuffer& buffer, size_t count) {
  const auto cols = static_cast<int64_t>(count);
  return {buffer.data(), 1, cols, cols};
}

// The magnitudes differ so much that the order of a sum changes its bits.
std::vector<float> randomValues(size_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<int64_t>(rng() % 2000001) - 1000000),
                       static_cast<int>(rng() % 30) - 15);
  }
  return values;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class LocalGroupTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(LocalGroupTest, SumsInRankOrder) {
  const int32_t size = GetParam();
  for (const int spin_us : kSpins) {
    LocalGroup group(size, 1, spin_us);
    const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
      EXPECT_EQ(comm.size(), size);
      // The largest counts need more than one piece.
      for (const size_t count : {1u, 3u, 17u, 1000u, 262145u, 600001u}) {
        std::vector<float> sum = randomValues(count, 10 * count);
        for (int32_t rank = 1; rank < size; ++rank) {
          const auto add = randomValues(count, 10 * count + static_cast<uint64_t>(rank));
          for (size_t i = 0; i < count; ++i) sum[i] += add[i];
        }
        const DeviceBuffer data =
            uploaded(randomValues(count, 10 * count + static_cast<uint64_t>(comm.rank())), backend);
        comm.allReduceSum(rowOf(data, count), {});
        EXPECT_TRUE(sameBits(downloaded(data, count, backend), sum)) << count;
      }
    });
    for (const auto& error : errors) EXPECT_EQ(error, "");
  }
}

TEST_P(LocalGroupTest, SumsDoublesAsDoubles) {
  const int32_t size = GetParam();
  LocalGroup group(size, 1, 0);
  const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
    const int64_t count = 200001;  // more than one piece
    const auto valueOf = [](int64_t i, int32_t rank) { return 1.0 / static_cast<double>(i + 3 * rank + 1); };
    std::vector<double> values(static_cast<size_t>(count)), sums(values.size());
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = valueOf(i, comm.rank());
      for (int32_t rank = 0; rank < size; ++rank) sums[static_cast<size_t>(i)] += valueOf(i, rank);
    }
    const DeviceBuffer data = backend.allocate(values.size() * sizeof(double));
    backend.upload(data.data(), values.data(), data.size(), {});
    comm.allReduceSum({data.data(), 3, count / 3, count / 3, DType::kFloat64}, {});
    backend.download(values.data(), data.data(), data.size(), {});
    EXPECT_EQ(values, sums);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST_P(LocalGroupTest, GathersColumnsOfTwoBytes) {
  const int32_t size = GetParam();
  LocalGroup group(size, 64, 0);
  const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
    const int64_t rows = 5, cols = 3, all = cols * size;
    const auto valueOf = [&](int64_t row, int64_t col) { return static_cast<uint16_t>(1000 * row + col + 1); };
    std::vector<uint16_t> part, expected, whole(static_cast<size_t>(rows * all));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < cols; ++c) part.push_back(valueOf(row, comm.rank() * cols + c));
      for (int64_t c = 0; c < all; ++c) expected.push_back(valueOf(row, c));
    }
    const DeviceBuffer from = backend.allocate(part.size() * 2), to = backend.allocate(whole.size() * 2);
    backend.upload(from.data(), part.data(), from.size(), {});
    comm.allGatherColumns({from.data(), rows, cols, cols, DType::kBFloat16},
                          {to.data(), rows, all, all, DType::kBFloat16}, {});
    backend.download(whole.data(), to.data(), to.size(), {});
    EXPECT_EQ(whole, expected);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST_P(LocalGroupTest, GathersColumnsAndLeavesPaddingOut) {
  const int32_t size = GetParam();
  constexpr int64_t kLongest = 300001;
  constexpr float kBetween = -7.0f;  // fills the gaps between rows, which must stay untouched
  LocalGroup group(size, kLongest, 0);
  const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
    for (const int64_t between : {0, 3}) {
      for (const auto& [rows, whole_cols] :
           std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 7}, {5, 13}, {64, 211}, {3000, 190}, {2, kLongest}}) {
        const int64_t part_cols = (whole_cols + size - 1) / size;
        const int64_t part_stride = part_cols + between, whole_stride = whole_cols + between;
        const auto value = [](int64_t row, int64_t column) { return static_cast<float>(row * 1000003 % 977 + column); };
        const std::vector<float> untouched(static_cast<size_t>(rows * whole_stride), kBetween);
        std::vector<float> part(static_cast<size_t>(rows * part_stride), kBetween), expected = untouched;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t c = 0; c < part_cols; ++c) {
            part[static_cast<size_t>(row * part_stride + c)] = value(row, comm.rank() * part_cols + c);
          }
          for (int64_t c = 0; c < whole_cols; ++c)
            expected[static_cast<size_t>(row * whole_stride + c)] = value(row, c);
        }
        const DeviceBuffer from = uploaded(part, backend);
        const DeviceBuffer to = uploaded(untouched, backend);
        comm.allGatherColumns({from.as<float>(), rows, part_cols, part_stride},
                              {to.as<float>(), rows, whole_cols, whole_stride}, {});
        EXPECT_TRUE(sameBits(downloaded(to, expected.size(), backend), expected)) << rows << " x " << whole_cols;
      }
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST_P(LocalGroupTest, PassesAlongAChain) {
  const int32_t size = GetParam();
  LocalGroup group(size, 1, 0);
  const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
    for (const size_t count : {1u, 5u, 262144u, 700003u}) {
      const std::vector<float> origin = randomValues(count, count);
      std::vector<float> values = origin;
      DeviceBuffer data = uploaded(std::vector<float>(count), backend);
      if (comm.rank() > 0) {
        comm.receive(rowOf(data, count), comm.rank() - 1, {});
        values = downloaded(data, count, backend);
        // Every rank doubles what it received before it sends it on.
        std::vector<float> expected = origin;
        for (float& value : expected) value *= static_cast<float>(1 << comm.rank());
        EXPECT_TRUE(sameBits(values, expected)) << count;
      }
      for (float& value : values) value *= 2;
      backend.upload(data.data(), values.data(), count * sizeof(float), {});
      if (comm.rank() + 1 < comm.size()) {
        comm.send(rowOf(data, count), comm.rank() + 1, {});
      }
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST_P(LocalGroupTest, MixedCallsInAnyRhythm) {
  const int32_t size = GetParam();
  LocalGroup group(size, 64, 50);
  const auto errors = onAllRanks(group, size, [&](Communicator& comm, Backend& backend) {
    std::mt19937_64 sleeps(static_cast<uint64_t>(comm.rank()) + 1), calls(99);
    const DeviceBuffer sums = backend.allocate(64 * sizeof(float));
    const DeviceBuffer whole = backend.allocate(static_cast<size_t>(size) * 3 * sizeof(float));
    const int sum_of_ranks = size * (size + 1) / 2;  // ranks numbered from 1
    for (int round = 0; round < 300; ++round) {
      if (sleeps() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(sleeps() % 200));
      const auto mine = static_cast<float>((comm.rank() + 1) * (round + 1));
      const std::vector<float> part(3, mine);
      if (calls() % 2 == 0) {
        backend.upload(sums.data(), part.data(), 3 * sizeof(float), {});
        comm.allReduceSum(rowOf(sums, 3), {});
        EXPECT_EQ(downloaded(sums, 3, backend)[2], static_cast<float>((round + 1) * sum_of_ranks));
      } else {
        backend.upload(sums.data(), part.data(), 3 * sizeof(float), {});
        comm.allGatherColumns({sums.as<float>(), 1, 3, 3}, {whole.as<float>(), 1, 3 * size, 3 * size}, {});
        for (int32_t rank = 0; rank < size; ++rank) {
          EXPECT_EQ(downloaded(whole, static_cast<size_t>(3 * size), backend)[static_cast<size_t>(3 * rank + 1)],
                    static_cast<float>((rank + 1) * (round + 1)));
        }
      }
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalGroupTest, ::testing::Values(1, 2, 3, 4));

TEST(LocalGroupAbortTest, FreesThoseThatWaitAndTheGroupGoesOn) {
  for (const int spin_us : kSpins) {
    LocalGroup group(4, 1, spin_us);
    for (int32_t failing = 0; failing < 4; ++failing) {
      // Rank 3 waits in receive(), the others in the barrier of allReduceSum(); the failing rank throws instead.
      const auto errors = onAllRanks(group, 4, [&](Communicator& comm, Backend& backend) {
        const DeviceBuffer data = backend.allocate(16);
        if (comm.rank() == failing) fail(ErrorCode::kExhausted, "no more memory");
        if (comm.rank() == 3) {
          comm.receive(rowOf(data, 4), 0, {});
        } else {
          comm.allReduceSum(rowOf(data, 4), {});
        }
      });
      for (int32_t rank = 0; rank < 4; ++rank) {
        EXPECT_THAT(errors[static_cast<size_t>(rank)],
                    HasSubstr(rank == failing ? "no more memory" : "another rank of the group failed"));
      }
      group.reset();
      const auto after = onAllRanks(group, 4, [&](Communicator& comm, Backend& backend) {
        const DeviceBuffer data = uploaded({1, 2, 3, 4}, backend);
        comm.allReduceSum(rowOf(data, 4), {});
        EXPECT_EQ(downloaded(data, 4, backend), (std::vector<float>{4, 8, 12, 16}));
        if (comm.rank() == 0) comm.send(rowOf(data, 4), 3, {});
        if (comm.rank() == 3) comm.receive(rowOf(data, 4), 0, {});
      });
      for (const auto& error : after) EXPECT_EQ(error, "");
    }
  }
}

TEST(LocalGroupAbortTest, AReceiverOfAnotherSizeIsTold) {
  LocalGroup group(2, 1, 0);
  const auto errors = onAllRanks(group, 2, [&](Communicator& comm, Backend& backend) {
    const DeviceBuffer data = backend.allocate(64);
    if (comm.rank() == 0) comm.send(rowOf(data, 4), 1, {});
    if (comm.rank() == 1) comm.receive(rowOf(data, 5), 0, {});
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("receives 20 bytes where rank 0 sends 16"));
}

}  // namespace
}  // namespace chorus
