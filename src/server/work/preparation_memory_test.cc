#include "server/work/preparation_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "server/errors.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus::server {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class PreparationMemoryTest : public ::testing::Test {
 protected:
  // Status of the error that `work` ends with; 200 if it ends without one.
  template <typename Work>
  int statusOf(const Work& work) {
    WorkMeter meter;
    const PreparationMemory memory(meter, client);
    try {
      work(meter);
    } catch (const ApiError& error) {
      return error.status();
    }
    return 200;
  }

  // A large charge of one client may have up to 12 MiB.
  std::shared_ptr<ClientRegistry> registry =
      std::make_shared<ClientRegistry>(ClientMemoryLimits{.server = 20 * kMiB, .client = 16 * kMiB});
  std::shared_ptr<Client> client = registry->find("a");
};

TEST_F(PreparationMemoryTest, IsChargedToTheClientWhileItExists) {
  WorkMeter meter;
  {
    const PreparationMemory memory(meter, client);
    meter.hold(kMiB);
    EXPECT_EQ(registry->used(), 0u) << "free";
    meter.hold(5 * kMiB);
    EXPECT_EQ(registry->used(), 6 * kMiB);
    meter.giveBack(6 * kMiB);
    EXPECT_EQ(statusOf([](WorkMeter& other) { other.hold(13 * kMiB); }), 400) << "more than any client may have";
    EXPECT_EQ(statusOf([](WorkMeter& other) { other.hold(7 * kMiB); }), 429);
    EXPECT_EQ(statusOf([](WorkMeter& other) { other.hold(6 * kMiB); }), 200);
    ClientCharge of_another(registry->find("b"));
    ASSERT_EQ(of_another.resize(8 * kMiB), MemoryAnswer::kGranted);
    EXPECT_EQ(statusOf([](WorkMeter& other) { other.hold(6 * kMiB); }), 503);
  }
  EXPECT_EQ(registry->used(), 0u);
  meter.hold(100 * kMiB);
}

TEST_F(PreparationMemoryTest, CountsWhatATokenizerHolds) {
  Json document = {{"model", {{"type", "WordLevel"}, {"vocab", {{"?", 0u}}}, {"unk_token", "?"}}},
                   {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "bbbb"}}}};
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t");
  const auto encode = [&](size_t bytes) {
    return [&tokenizer, bytes](WorkMeter& meter) { tokenizer->encode(std::string(bytes, 'a'), false, meter); };
  };
  EXPECT_EQ(statusOf(encode(kMiB)), 200);
  EXPECT_EQ(statusOf(encode(4 * kMiB)), 400);
}

TEST_F(PreparationMemoryTest, CountsWhatATemplateHolds) {
  const auto chat = ChatTemplate::compile("{% set x = 'a' * n %}{{ x | length }}", "t");
  const auto render = [&](int64_t n) {
    return [&chat, n](WorkMeter& meter) { chat->render({.variables = OrderedJson{{"n", n}}}, meter); };
  };
  EXPECT_EQ(statusOf(render(4 * kMiB)), 200);
  EXPECT_EQ(statusOf(render(13 * kMiB)), 400);
}

}  // namespace
}  // namespace chorus::server
