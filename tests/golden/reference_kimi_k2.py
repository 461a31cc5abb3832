"""Kimi-K2 is DeepSeek-V3's implementation. With more experts a choice is near another more often: its continuations are
shorter."""

from reference_deepseek_v3 import bf16_activations, fast_attention, load_model, router_margins, verify_implementation

__all__ = ["bf16_activations", "fast_attention", "load_model", "router_margins", "verify_implementation"]

GREEDY_TOKENS = 16
