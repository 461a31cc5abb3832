// A context-free grammar as its parsers write it: rules over bytes and code points.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/grammar/code_point_set.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {

// What a special token is in a grammar and in the vocabulary: its text between two bytes that UTF-8 does not have.
inline constexpr uint8_t kSpecialTokenByte = 0xFF;
inline std::string SpecialTokenBytes(std::string_view text) {
  std::string bytes(1, static_cast<char>(kSpecialTokenByte));
  bytes += text;
  return bytes += static_cast<char>(kSpecialTokenByte);
}

using NodeId = int32_t;
using RuleId = int32_t;

// Nodes are made before those that contain them, and may stand in several. Rule 0 is the root.
class Grammar {
 public:
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  // An automaton of bytes, which begins in state 0.
  struct Graph {
    struct Edge {
      int32_t from;
      uint8_t first;
      uint8_t last;  // inclusive
      int32_t to;
    };
    std::vector<Edge> edges = {};
    std::vector<bool> accepting = {};  // by state; not none
  };

  struct Node {
    enum class Kind {
      kBytes,         // `bytes`, possibly none
      kClass,         // one code point of `set`
      kSequence,      // `children`, in order
      kAlternatives,  // one of `children`
      kRepeat,        // the only child, `min` to `max` times
      kRule,          // what `rule` matches
      kWithout,       // any text that has neither `bytes` nor special tokens
      kUntil,         // any text, up to and with the first `bytes`, or the special token that is spelled so
      kGraph,         // what leads through `graph`
    };
    Kind kind;
    std::string bytes = {};
    CodePointSet set = {};
    std::vector<NodeId> children = {};
    uint32_t min = 0;
    uint32_t max = 0;
    RuleId rule = 0;
    Graph graph = {};
    int depth = 1;  // of nodes in each other
  };
  struct Rule {
    std::string name;  // for messages
    NodeId body = -1;  // -1: not defined yet
  };

  NodeId Bytes(std::string bytes) { return Add({.kind = Node::Kind::kBytes, .bytes = std::move(bytes)}); }
  // A special token of this text, or the text itself. No other node has special tokens.
  NodeId Token(const std::string& text) { return Alternatives({Bytes(SpecialTokenBytes(text)), Bytes(text)}); }
  // REQUIRES: `end` is not empty.
  NodeId Without(std::string text) { return Add({.kind = Node::Kind::kWithout, .bytes = std::move(text)}); }
  NodeId Until(std::string end) { return Add({.kind = Node::Kind::kUntil, .bytes = std::move(end)}); }
  NodeId FromGraph(Graph graph) { return Add({.kind = Node::Kind::kGraph, .graph = std::move(graph)}); }
  NodeId Class(CodePointSet set) { return Add({.kind = Node::Kind::kClass, .set = std::move(set)}); }
  NodeId Sequence(std::vector<NodeId> children) {
    return Add({.kind = Node::Kind::kSequence, .children = std::move(children)});
  }
  NodeId Alternatives(std::vector<NodeId> children) {
    return Add({.kind = Node::Kind::kAlternatives, .children = std::move(children)});
  }
  NodeId Repeat(NodeId child, uint32_t min, uint32_t max) {
    return Add({.kind = Node::Kind::kRepeat, .children = {child}, .min = min, .max = max});
  }
  NodeId Optional(NodeId child) { return Repeat(child, 0, 1); }
  NodeId Call(RuleId rule) { return Add({.kind = Node::Kind::kRule, .rule = rule}); }

  RuleId AddRule(std::string name) {
    rules_.push_back({std::move(name)});
    return static_cast<RuleId>(rules_.size() - 1);
  }
  void Define(RuleId rule, NodeId body) { rules_[rule].body = body; }
  RuleId AddRule(std::string name, NodeId body) {
    const RuleId rule = AddRule(std::move(name));
    Define(rule, body);
    return rule;
  }

  // A call of the other grammar's root.
  NodeId Import(const Grammar& other) {
    const auto nodes = static_cast<NodeId>(nodes_.size());
    const auto rules = static_cast<RuleId>(rules_.size());
    bytes_ += other.bytes_;
    is_too_large_ |= other.is_too_large_ || nodes_.size() + other.nodes_.size() > kMaxNodes || bytes_ > kMaxNodeBytes;
    for (Node node : other.nodes_) {
      for (NodeId& child : node.children) child += nodes;
      node.rule += rules;
      nodes_.push_back(std::move(node));
    }
    for (const Rule& rule : other.rules_) rules_.push_back({rule.name, rule.body < 0 ? -1 : rule.body + nodes});
    return Call(rules);
  }

  // Whether it has lost nodes because of kMaxNodes or kMaxNodeBytes: it may not be used then.
  bool is_too_large() const { return is_too_large_; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  NodeId Add(Node node) {
    bytes_ += node.bytes.size() + node.graph.edges.size() * sizeof(Graph::Edge);
    is_too_large_ |= nodes_.size() >= kMaxNodes || bytes_ > kMaxNodeBytes;
    if (is_too_large_ && !nodes_.empty()) return 0;
    for (const NodeId child : node.children) node.depth = std::max(node.depth, nodes_[child].depth + 1);
    nodes_.push_back(std::move(node));
    return static_cast<NodeId>(nodes_.size() - 1);
  }

  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  size_t bytes_ = 0;
  bool is_too_large_ = false;
};

}  // namespace moestro::text::grammar
