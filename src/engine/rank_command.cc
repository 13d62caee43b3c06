#include "engine/rank_command.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace chorus {
namespace {

// All commands begin with the RankCommand. Commands about an adapter continue with its id at kIdAt.
constexpr size_t kIdAt = 8;

// A sequence without its tables, which follow all sequences.
struct SequenceHead {
  int32_t row_begin, num_rows, first_position;
  int32_t blocks;  // entries of each of its block tables
};

class Writer {
 public:
  // Appends to `bytes`.
  explicit Writer(std::vector<std::byte>& bytes) : bytes_(bytes) {}
  template <typename T>
  void put(const T& value) {
    putAll(std::span(&value, 1));
  }
  template <typename T>
  void putAll(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto raw = std::as_bytes(values);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  template <typename T>
  void putList(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    putAll(std::span<const T>(values));
  }

 private:
  std::vector<std::byte>& bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes, size_t at = 0) : rest_(bytes) { take(at); }

  template <typename T>
  T get() {
    T value;
    getAll(std::span(&value, 1));
    return value;
  }
  template <typename T>
  void getAll(std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto raw = take(values.size_bytes());
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
  }
  // The length of a list whose items take at least item_bytes bytes each.
  size_t count(size_t item_bytes) {
    const auto count = get<uint32_t>();
    if (count > rest_.size() / item_bytes) failCut();
    return count;
  }
  template <typename T>
  void getList(std::vector<T>& values) {
    values.resize(count(sizeof(T)));
    getAll(std::span(values));
  }
  bool atEnd() const { return rest_.empty(); }
  [[noreturn]] static void failCut() { fail(ErrorCode::kInternal, "a rank command is cut short"); }

 private:
  std::span<const std::byte> take(size_t size) {
    if (size > rest_.size()) failCut();
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::span<const std::byte> rest_;
};

}  // namespace

void encodeStep(const StepInput& input, int32_t kv_groups, std::vector<std::byte>& bytes) {
  bytes.clear();
  Writer writer(bytes);
  writer.put(RankCommand::kStep);
  writer.put(kv_groups);
  writer.putList(input.tokens);
  writer.putList(input.logits_rows);
  writer.putList(input.copies);
  writer.put(static_cast<uint32_t>(input.sequences.size()));
  for (const SequenceSpan& sequence : input.sequences) {
    writer.put(SequenceHead{sequence.row_begin, sequence.num_rows, sequence.first_position,
                            static_cast<int32_t>(sequence.block_tables[0].size())});
  }
  for (const SequenceSpan& sequence : input.sequences) {
    for (int32_t group = 0; group < kv_groups; ++group) writer.putAll(sequence.block_tables[group]);
  }
  writer.put(static_cast<uint32_t>(input.adapters.size()));
  for (const AdapterRows& rows : input.adapters) {
    writer.put(rows.adapter);
    writer.put(rows.vocab_size);
    writer.putList(rows.ranges);
  }
}

std::vector<std::byte> encodeCompose(AdapterId adapter, std::span<const ComposedTerm> terms) {
  const AdapterCommandBytes head = encodeAdapter(RankCommand::kCompose, adapter);
  std::vector<std::byte> bytes(head.begin(), head.end());
  Writer writer(bytes);
  for (const ComposedTerm& term : terms) {
    writer.put(term.adapter);
    writer.put(term.weight);
  }
  return bytes;
}

AdapterCommandBytes encodeAdapter(RankCommand command, AdapterId adapter) {
  AdapterCommandBytes bytes{};
  std::memcpy(bytes.data(), &command, sizeof command);
  std::memcpy(bytes.data() + kIdAt, &adapter, sizeof adapter);
  return bytes;
}

RankCommand commandOf(std::span<const std::byte> bytes) { return Reader(bytes).get<RankCommand>(); }

AdapterId decodeAdapter(std::span<const std::byte> bytes) { return Reader(bytes, kIdAt).get<AdapterId>(); }

std::vector<ComposedTerm> decodeComposedTerms(std::span<const std::byte> bytes) {
  Reader reader(bytes, sizeof(AdapterCommandBytes));
  std::vector<ComposedTerm> terms;
  while (!reader.atEnd()) {
    const auto adapter = reader.get<AdapterId>();
    terms.push_back({adapter, reader.get<float>()});
  }
  return terms;
}

const StepInput& StepDecoder::decode(std::span<const std::byte> bytes) {
  Reader reader(bytes, sizeof(RankCommand));
  const auto kv_groups = reader.get<int32_t>();
  reader.getList(input_.tokens);
  reader.getList(input_.logits_rows);
  reader.getList(input_.copies);
  input_.sequences.resize(reader.count(sizeof(SequenceHead)));
  if (kv_groups < 1) Reader::failCut();
  table_lengths_.clear();
  uint64_t blocks_of_group = 0;
  for (SequenceSpan& sequence : input_.sequences) {
    const auto head = reader.get<SequenceHead>();
    if (head.blocks < 0) Reader::failCut();
    sequence = {head.row_begin, head.num_rows, head.first_position, {}};
    table_lengths_.push_back(head.blocks);
    blocks_of_group += static_cast<uint64_t>(head.blocks);
  }
  if (blocks_of_group > bytes.size() / sizeof(int32_t) / static_cast<uint64_t>(kv_groups)) Reader::failCut();
  tables_.resize(blocks_of_group * static_cast<uint64_t>(kv_groups));
  reader.getAll(std::span(tables_));
  std::span<const int32_t> rest = tables_;
  for (size_t i = 0; i < table_lengths_.size(); ++i) {
    const auto length = static_cast<size_t>(table_lengths_[i]);
    input_.sequences[i].block_tables = BlockTables(rest.first(length), table_lengths_[i]);
    rest = rest.subspan(length * static_cast<size_t>(kv_groups));
  }
  input_.adapters.resize(reader.count(sizeof(AdapterId)));
  for (AdapterRows& rows : input_.adapters) {
    rows.adapter = reader.get<AdapterId>();
    rows.vocab_size = reader.get<int64_t>();
    reader.getList(rows.ranges);
  }
  if (!reader.atEnd()) fail(ErrorCode::kInternal, "a rank command has bytes beyond its end");
  return input_;
}

}  // namespace chorus
