#include "runtime/inbox.h"

#include <gtest/gtest.h>

#include <string>

namespace chorus {
namespace {

using executor::IdType;

RequestTable::Requests requestsOf(std::optional<IdType> client, const std::vector<IdType>& ids, int32_t sequences = 1) {
  RequestTable::Requests made;
  for (const IdType id : ids) {
    executor::SamplingConfig sampling;
    sampling.setNumReturnSequences(sequences);
    executor::Request asked({1, 2}, 3, false, sampling);
    asked.setClientId(client);
    made.emplace(id, std::make_unique<Request>(id, asked, nullptr, 64, makeStrategy));
  }
  return made;
}

// Takes once from the inbox. Returns the ids of the requests, and a letter for each other command, in their order.
std::string take(Inbox& inbox) {
  auto taken = inbox.makeTaken();
  inbox.take(taken);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " ") + part; };
  for (const auto& command : taken.commands) {
    if (const auto* node = std::get_if<Inbox::Node>(&command)) add(std::to_string(node->key()));
    if (const auto* cancel = std::get_if<Inbox::Cancel>(&command)) add("c" + std::to_string(cancel->id));
    if (const auto* set = std::get_if<Inbox::SetAdapter>(&command)) add("s" + std::to_string(set->task_id));
  }
  for (const auto& node : taken.requests) add(std::to_string(node.key()) + (node.mapped()->cancelled ? "x" : ""));
  return text;
}

TEST(InboxTest, ClientsTakeTurnsAndTheRestIsLeft) {
  Inbox inbox(4);
  inbox.add(requestsOf(1, {1, 2, 3, 4, 5}));
  inbox.add(requestsOf(2, {6, 7}));
  inbox.add(requestsOf(std::nullopt, {8}));
  EXPECT_EQ(take(inbox), "1 6 8 2");
  EXPECT_EQ(take(inbox), "7 3 4 5");
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(take(inbox), "");
}

TEST(InboxTest, SequencesCount) {
  Inbox inbox(4);
  inbox.add(requestsOf(1, {1, 2, 3}, 3));
  EXPECT_EQ(take(inbox), "1 2");
  EXPECT_EQ(take(inbox), "3");
  inbox.add(requestsOf(1, {4}, 1000));
  EXPECT_EQ(take(inbox), "4") << "a request is taken as a whole";
}

TEST(InboxTest, AChangeOfAnAdapterComesAfterTheRequestsBeforeIt) {
  Inbox inbox(2);
  inbox.add(requestsOf(1, {1, 2, 3}));
  inbox.add(requestsOf(2, {4}));
  inbox.add(Inbox::SetAdapter{9, nullptr});
  inbox.add(requestsOf(1, {5, 6, 7}));
  EXPECT_FALSE(inbox.cancel(2)) << "a command must follow it";
  inbox.add(Inbox::Cancel{2});
  EXPECT_EQ(take(inbox), "1 2 3 4 s9 c2 5 6");
  EXPECT_EQ(take(inbox), "7");
}

TEST(InboxTest, ARequestThatWaitsIsCancelledThere) {
  Inbox inbox(2);
  inbox.add(requestsOf(1, {1, 2, 3}));
  EXPECT_TRUE(inbox.cancel(3));
  EXPECT_FALSE(inbox.cancel(4));
  EXPECT_EQ(take(inbox), "1 2");
  EXPECT_FALSE(inbox.cancel(1));
  EXPECT_EQ(take(inbox), "3x");
}

}  // namespace
}  // namespace chorus
