#include "text/tokenizer/regex_syntax.h"

#include <algorithm>
#include <string>

#include "text/tokenizer/regex_scanner.h"

namespace chorus::regex {
namespace {

constexpr int kMaxDepth = 24;
constexpr uint32_t kMaxRepetition = 2000;
constexpr size_t kMaxSetItems = 4096;
constexpr uint32_t kLastCode = 0x10FFFF;

// True for two letters that together are the folded form of one character, as "ss" is of U+00DF.
bool foldsTogether(uint32_t first, uint32_t second) {
  first |= 0x20, second |= 0x20;
  return (first == 's' && (second == 's' || second == 't')) ||
         (first == 'f' && (second == 'f' || second == 'i' || second == 'l'));
}

// Adds a character and, for an ASCII letter, its other case and the character beyond ASCII that folds to it (for k and
// s).
void addFolded(CharacterSet& set, uint32_t code) {
  set.addRange(code, code);
  if (!isAsciiLetter(code)) return;
  set.addRange(code ^ 0x20, code ^ 0x20);
  if ((code | 0x20) == 'k') set.addRange(0x212A, 0x212A);
  if ((code | 0x20) == 's') set.addRange(0x17F, 0x17F);
}

struct Flags {
  bool ignore_case = false;
  bool dot_all = false;
};

class Parser : PatternScanner {
 public:
  explicit Parser(Utf8View text) : PatternScanner(text) {}

  Pattern run() {
    Flags flags;
    // An option without a group is supported only at the very start, where it applies to the whole pattern.
    if (text_.bytes().starts_with("(?i)")) at_ = 4, flags.ignore_case = true;
    pattern_.root = alternatives(flags, 0);
    // With look-behind and an end-of-text assertion together, Oniguruma misses matches at the very end of a text.
    if (!ended() || (looks_behind_ && ends_text_)) throw Unsupported();
    return std::move(pattern_);
  }

 private:
  uint32_t intern(CharacterSet set) {
    set.prepare();
    items_ += 1 + set.cost() / 8;
    if (items_ > kMaxSetItems) throw Unsupported();
    const auto it = std::find(pattern_.sets.begin(), pattern_.sets.end(), set);
    const auto index = static_cast<uint32_t>(it - pattern_.sets.begin());
    if (it == pattern_.sets.end()) pattern_.sets.push_back(std::move(set));
    return index;
  }
  Node ofSet(CharacterSet set) {
    Node node;
    node.kind = Node::Kind::kSet;
    node.set = intern(std::move(set));
    return node;
  }
  static Node ofAssertion(Assertion assertion) {
    Node node;
    node.kind = Node::Kind::kAssert;
    node.assertion = assertion;
    return node;
  }

  Node literal(uint32_t code, const Flags& flags) {
    CharacterSet set;
    if (flags.ignore_case) {
      if (code >= 128 || foldsTogether(folded_before_, code)) throw Unsupported();
      addFolded(set, code);
    } else {
      set.addRange(code, code);
    }
    folded_before_ = flags.ignore_case ? code : 0;
    return ofSet(std::move(set));
  }

  Node alternatives(const Flags& flags, int depth) {
    if (depth > kMaxDepth) throw Unsupported();
    Node node;
    node.kind = Node::Kind::kAlternatives;
    node.parts.push_back(sequence(flags, depth));
    while (take("|")) {
      folded_before_ = 0;
      node.parts.push_back(sequence(flags, depth));
    }
    if (node.parts.size() > 1) return mergedSets(std::move(node));
    Node only = std::move(node.parts[0]);
    return only;
  }

  // Alternatives that are all single characters become one set, which needs no backtracking.
  Node mergedSets(Node node) {
    const auto is_set = [](const Node& part) { return part.kind == Node::Kind::kSet; };
    if (!std::all_of(node.parts.begin(), node.parts.end(), is_set)) return node;
    CharacterSet set;
    for (const Node& part : node.parts) set.addSet(pattern_.sets[part.set]);
    return ofSet(std::move(set));
  }

  Node sequence(const Flags& flags, int depth) {
    Node node;
    while (!ended() && peek() != '|' && peek() != ')') {
      if (take("(?#")) {
        const size_t end = text_.bytes().find(')', at_);
        if (end == std::string_view::npos ||
            text_.bytes().substr(at_, end - at_).find('\\') != std::string_view::npos) {
          throw Unsupported();
        }
        at_ = end + 1;
        continue;
      }
      node.parts.push_back(quantified(flags, depth));
    }
    if (node.parts.size() != 1) return node;
    Node only = std::move(node.parts[0]);
    return only;
  }

  Node quantified(const Flags& flags, int depth) {
    Node atom = this->atom(flags, depth);
    uint32_t min = 0, max = 0;
    bool interval = false;
    if (take("*")) {
      max = kNoLimit;
    } else if (take("+")) {
      min = 1, max = kNoLimit;
    } else if (take("?")) {
      max = 1;
    } else if (has("{")) {
      readInterval(min, max);
      interval = true;
    } else {
      return atom;
    }
    // Oniguruma rewrites a repetition of a repetition, not always to an equivalent one.
    const bool simple = !interval && peek() != '?' && peek() != '+';
    const bool harmless =
        simple && atom.greed == Greed::kGreedy && (atom.min <= 1 && (atom.max <= 1 || atom.max == kNoLimit));
    const bool repeatable = atom.kind != Node::Kind::kRepeat || harmless;
    if (!repeatable || mayBeNoTarget(atom) || (interval && folded_before_ != 0)) throw Unsupported();
    // Oniguruma ends a repetition after an empty round, whatever the count.
    if (max > 1 && canBeEmpty(atom)) throw Unsupported();
    folded_before_ = 0;
    Node node;
    node.kind = Node::Kind::kRepeat;
    node.min = min, node.max = max;
    if (has("?")) {
      if (interval && min == max) throw Unsupported();
      take("?");
      node.greed = Greed::kLazy;
    } else if (has("+")) {
      if (interval) throw Unsupported();
      take("+");
      node.greed = Greed::kPossessive;
    }
    if (has("*") || has("+") || has("?") || has("{")) throw Unsupported();
    node.parts.push_back(std::move(atom));
    return node;
  }

  // Oniguruma refuses to repeat alternatives if one of them is only an assertion.
  static bool mayBeNoTarget(const Node& node) {
    if (node.kind == Node::Kind::kLook || node.kind == Node::Kind::kAssert) return true;
    return node.kind == Node::Kind::kAlternatives && std::any_of(node.parts.begin(), node.parts.end(), mayBeNoTarget);
  }

  void readInterval(uint32_t& min, uint32_t& max) {
    take("{");
    const auto number = [&](uint32_t& value) {
      const size_t begin = at_;
      value = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        value = value * 10 + static_cast<uint32_t>(peek() - '0');
        if (value > kMaxRepetition) throw Unsupported();
      }
      return at_ > begin;
    };
    const bool low = number(min);
    if (take(",")) {
      const bool high = number(max);
      if (!low && !high) throw Unsupported();
      if (!high) max = kNoLimit;
    } else {
      if (!low) throw Unsupported();
      max = min;
    }
    if (!take("}") || max < min) throw Unsupported();
  }

  Node atom(const Flags& flags, int depth) {
    switch (peek()) {
      case '(':
        return group(flags, depth);
      case '[': {
        ++at_;
        folded_before_ = 0;
        return ofSet(bracket(flags, depth));
      }
      case '.': {
        ++at_;
        folded_before_ = 0;
        CharacterSet set;
        set.addRange('\n', '\n');
        set.negate();
        if (!flags.dot_all) return ofSet(std::move(set));
        CharacterSet any;
        any.addRange(0, kLastCode);
        return ofSet(std::move(any));
      }
      case '^':
        ++at_;
        return ofAssertion(Assertion::kLineBegin);
      case '$':
        ++at_;
        return ofAssertion(Assertion::kLineEnd);
      case '\\':
        ++at_;
        return escape(flags);
      case '*':
      case '+':
      case '?':
      case '{':
        throw Unsupported();
      default:
        return literal(next(), flags);
    }
  }

  Node group(Flags flags, int depth) {
    ++at_;
    if (has("*")) throw Unsupported();
    Node node;
    bool wrap = true, captures = false;
    if (take("?")) {
      if (take(":")) {
        wrap = false;
      } else if (take("=") || has("!")) {
        node.kind = Node::Kind::kLook;
        node.negated = take("!");
      } else if (take(">")) {
        node.kind = Node::Kind::kAtomic;
      } else if (has("<=") || has("<!")) {
        node.kind = Node::Kind::kLook;
        node.behind = true;
        node.negated = peek(1) == '!';
        at_ += 2;
      } else if (take("<")) {
        named_ = true;
        const size_t begin = at_;
        while (isAsciiLetter(static_cast<unsigned char>(peek())) || peek() == '_' ||
               (at_ > begin && peek() >= '0' && peek() <= '9')) {
          ++at_;
        }
        if (at_ == begin || !take(">")) throw Unsupported();
        ++captures_;
        wrap = false;
      } else if (take("i:")) {
        flags.ignore_case = true;
        wrap = false;
      } else if (take("m:")) {
        flags.dot_all = true;
        wrap = false;
      } else {
        throw Unsupported();
      }
    } else {
      wrap = false;
      captures = true;
    }
    // Letters inside a look-around don't fold together with letters outside it.
    if (node.kind == Node::Kind::kLook) folded_before_ = 0;
    const int captures_before = captures_;
    Node body = alternatives(flags, depth + 1);
    if (node.behind && captures_ > captures_before) throw Unsupported();
    captures_ += captures;
    if (!take(")")) throw Unsupported();
    if (captures && !named_ && body.kind == Node::Kind::kRepeat) {
      // Oniguruma rewrites a repetition of a repetition only inside groups that don't capture.
      node.parts.push_back(std::move(body));
      return node;
    }
    if (!wrap) return body;
    if (node.kind == Node::Kind::kLook) folded_before_ = 0;
    if (node.behind) checkBehind(body);
    looks_behind_ |= node.behind;
    node.parts.push_back(std::move(body));
    return node;
  }

  static void checkBehind(const Node& body) {
    const auto check = [](const Node& part) {
      if (!fixedLength(part)) throw Unsupported();
    };
    if (body.kind != Node::Kind::kAlternatives) return check(body);
    for (const Node& part : body.parts) check(part);
  }

  Node escape(const Flags& flags) {
    const uint32_t code = next();
    CharacterSet set;
    switch (code) {
      case 'w':
      case 'W':
        if (flags.ignore_case) throw Unsupported();
        set.addWord(code == 'W');
        break;
      case 'A':
        return ofAssertion(Assertion::kTextBegin);
      case 'z':
        ends_text_ = true;
        return ofAssertion(Assertion::kTextEnd);
      case 'Z':
        ends_text_ = true;
        return ofAssertion(Assertion::kTextEndOrNewline);
      case 'b':
        return ofAssertion(Assertion::kWordBoundary);
      case 'B':
        return ofAssertion(Assertion::kNoWordBoundary);
      case 'N':
        set.addRange('\n', '\n');
        set.negate();
        break;
      case 'O':
        set.addRange(0, kLastCode);
        break;
      default:
        if (!classEscape(code, set)) return literal(characterEscape(code), flags);
        if (flags.ignore_case) throw Unsupported();
    }
    folded_before_ = 0;
    return ofSet(std::move(set));
  }

  // Parses a bracket expression, after its opening bracket.
  CharacterSet bracket(const Flags& flags, int depth) {
    if (depth > kMaxDepth) throw Unsupported();
    CharacterSet set;
    const bool negated = take("^");
    if (negated) set.negate();
    if (has("]") || (negated && flags.ignore_case)) throw Unsupported();
    for (bool first = true; !take("]"); first = false) {
      if (has("&&")) throw Unsupported();
      if (has("[:")) {
        if (flags.ignore_case) throw Unsupported();
        posixBracket(set);
        continue;
      }
      if (take("[")) {
        if (flags.ignore_case) throw Unsupported();
        CharacterSet inner = bracket(flags, depth + 1);
        inner.prepare();
        set.addSet(std::move(inner));
        continue;
      }
      const bool dash = has("-");
      if (dash && ((!first && peek(1) != ']') || peek(1) == '-')) throw Unsupported();
      uint32_t code = next();
      if (code == '\\') {
        code = next();
        if (classEscape(code, set)) {
          if (flags.ignore_case) throw Unsupported();
          if (has("-") && peek(1) != ']') throw Unsupported();
          continue;
        }
        code = code == 'b' ? '\b' : characterEscape(code);
      }
      uint32_t last = code;
      if (has("-") && peek(1) != ']' && !(dash && first)) {
        take("-");
        if (has("[") || has("-")) throw Unsupported();
        last = next();
        if (last == '\\') last = rangeEnd();
        if (last < code) throw Unsupported();
        if (has("-") && peek(1) != ']') throw Unsupported();
      }
      if (!flags.ignore_case) {
        set.addRange(code, last);
      } else {
        if (last >= 128) throw Unsupported();
        for (uint32_t c = code; c <= last; ++c) addFolded(set, c);
      }
    }
    return set;
  }

  Pattern pattern_;
  size_t items_ = 0;
  bool looks_behind_ = false, ends_text_ = false;
  int captures_ = 0;
  bool named_ = false;  // the pattern has named groups, so that unnamed ones don't capture
  // The last letter read if it ignores case, because it may fold together with the next one; otherwise 0.
  uint32_t folded_before_ = 0;
};

}  // namespace

std::optional<Pattern> parsePattern(Utf8View pattern) {
  try {
    return Parser(pattern).run();
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

bool canBeEmpty(const Node& node) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::kSet:
      return false;
    case Kind::kAlternatives:
      return std::any_of(node.parts.begin(), node.parts.end(), canBeEmpty);
    case Kind::kSequence:
    case Kind::kAtomic:
      return std::all_of(node.parts.begin(), node.parts.end(), canBeEmpty);
    case Kind::kRepeat:
      return node.min == 0 || canBeEmpty(node.parts[0]);
    default:
      return true;
  }
}

std::optional<uint32_t> fixedLength(const Node& node) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::kSet:
      return 1;
    case Kind::kSequence: {
      uint32_t sum = 0;
      for (const Node& part : node.parts) {
        const auto length = fixedLength(part);
        if (!length || *length > kMaxRepetition) return std::nullopt;
        sum = std::min(sum + *length, kMaxRepetition + 1);
      }
      return sum;
    }
    case Kind::kRepeat: {
      const auto length = fixedLength(node.parts[0]);
      if (!length || node.min != node.max || *length > kMaxRepetition) return std::nullopt;
      return std::min(*length * node.min, kMaxRepetition + 1);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace chorus::regex
