#include "server/model/adapter_texts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

// One adapter may keep this part of the memory, so that a tenant needs several to keep others out.
constexpr size_t kMostShares = 4;

// A codec and its charge to the budget.
struct ChargedCodec {
  std::shared_ptr<MemoryBudget> budget;
  MemoryCharge charge;
  std::shared_ptr<const TextCodec> codec;
};

// Upper bound on the memory for parsing the files, without their text. In the densest documents a JSON value takes 128
// bytes with its share of the containers around it, and each value follows a comma or an opening bracket. A line of the
// other formats (vocabularies, merges, ranks) becomes at most kLineValues such values.
size_t parsingBytes(const TokenizerFileSet& files) {
  constexpr size_t kValueBytes = 128, kLineValues = 3;
  size_t values = 0;
  for (const auto& [name, text] : files.files) {
    values += static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '[' || c == '{'; }));
    if (name.ends_with(".json") || name.ends_with(".jinja")) continue;
    values += kLineValues * static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  return values * kValueBytes + 2 * files.bytes();
}

// Estimate of the memory that the parsed tokenizer and templates keep, for use before memoryBytes() is known. Each byte
// of the files becomes entries of hash tables and of lists of merges.
size_t keptBytes(const TokenizerFileSet& files) {
  constexpr size_t kPerByte = 8;
  return kPerByte * files.bytes();
}

[[noreturn]] void failTooCostly(const std::string& path, const WorkStopped& e) {
  fail(e.code(), "{}: its tokenizer or a template costs too much: {}", path, e.what());
}

void chargeFor(const std::string& path, WorkMeter& meter, size_t bytes) {
  try {
    meter.charge(bytes);
  } catch (const WorkStopped& e) {
    failTooCostly(path, e);
  }
}

}  // namespace

AdapterTexts::AdapterTexts(std::shared_ptr<const TextCodec> base, std::filesystem::path base_directory,
                           int32_t vocabSize, const AdapterTextOptions& options)
    : base_(std::move(base)),
      base_directory_(std::move(base_directory)),
      base_digest_(readTokenizerFileSet(base_directory_).digest()),
      vocab_size_(vocabSize),
      trusted_(options.trusted),
      budget_(std::make_shared<MemoryBudget>(options.memory_bytes)) {}

std::shared_ptr<const TextCodec> AdapterTexts::load(const Directory& adapterDirectory, WorkMeter& meter, bool parse) {
  const std::string path = adapterDirectory.path().string();
  const TokenizerFileSet files =
      readTokenizerFileSet(adapterDirectory, {.file_bytes = kMaxFileBytes, .total_bytes = kMaxTotalBytes});
  if (files.empty()) return base_;
  chargeFor(path, meter, files.bytes());
  const std::string digest = files.digest();
  if (digest == base_digest_) return base_;
  if (!trusted_) {
    fail(ErrorCode::kUnsupported,
         "{}: the adapter has its own tokenizer or chat template, which --trust_adapter_text off does not allow; "
         "remove {}",
         path, files.files.begin()->first);
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(loaded_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto it = loaded_.find(digest); it != loaded_.end()) {
      if (auto text = it->second.lock()) return text;
    }
  }
  if (!parse) return nullptr;
  const TokenizerFileSet base = files.hasTokenizer() ? TokenizerFileSet{} : readTokenizerFileSet(base_directory_);
  auto charged = std::make_shared<ChargedCodec>(ChargedCodec{budget_, MemoryCharge(*budget_), nullptr});
  const auto take = [&](size_t bytes) {
    if (charged->charge.resize(bytes)) return;
    fail(bytes > budget_->limit() ? ErrorCode::kTooLarge : ErrorCode::kExhausted,
         "{}: its tokenizer and templates need {:.0f} MiB, but all adapters may use {:.0f} MiB and {:.0f} MiB are in "
         "use; raise --adapter_text_memory",
         path, mebibytes(bytes), mebibytes(budget_->limit()), mebibytes(budget_->used()));
  };
  take(keptBytes(files) + keptBytes(base) + parsingBytes(files) + parsingBytes(base));
  try {
    chargeFor(path, meter, base.bytes());
    charged->codec = parseTextCodec(files, &base, meter, std::max(vocab_size_, base_->vocabSize()));
  } catch (const WorkStopped& e) {
    failTooCostly(path, e);
  }
  const size_t kept = charged->codec->memoryBytes();
  if (kept > budget_->limit() / kMostShares) {
    fail(ErrorCode::kTooLarge,
         "{}: its tokenizer and templates take {:.1f} MiB, but those of one adapter may take {:.1f} MiB, a quarter of "
         "--adapter_text_memory",
         path, mebibytes(kept), mebibytes(budget_->limit() / kMostShares));
  }
  take(kept);
  const std::shared_ptr<const TextCodec> text(charged, charged->codec.get());
  const std::lock_guard lock(mutex_);
  loaded_[digest] = text;
  return text;
}

}  // namespace chorus::server
