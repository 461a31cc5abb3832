"""Rounds of turns, one of each side, and their ratios: a temporary slowdown of the machine affects both sides."""

import statistics

# What is measured, and its name in reports; of `experts_…`, the routed experts of all layers alone.
NAMES = {"prompt": "prompt of {prompt_tokens}", "decode": "decode of {decode_tokens}",
         "experts_prompt": "experts of a prompt of {prompt_tokens}",
         "experts_decode": "experts of {decode_tokens} decoded"}

def take_turns(sides, rounds, progress=lambda line: None):
    """One {side's name: result of its turn} a round. Each round begins with the next side."""
    results = []
    for i in range(rounds):
        first = i % len(sides)
        result = {}
        for side in sides[first:] + sides[:first]:
            result[side.name] = side.turn()
            progress(f"[{i + 1}/{rounds}] {side.name}: " + ", ".join(
                f"{what} {value:.1f}" for what, value in result[side.name].items() if what in NAMES) + " tok/s")
        results.append(result)
    return results


def summary(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def compare(results, ours, peer, what):
    """Both sides' tokens a second, and the ratio taken round by round."""
    return {"ours": summary(r[ours][what] for r in results), "peer": summary(r[peer][what] for r in results),
            "ratio": summary(r[ours][what] / r[peer][what] for r in results)}


def shares(results, ours, peer, what, token_bytes):
    """Of the read bandwidth that was measured in the same round, what decode's bytes take."""
    def share(name):
        return summary(r[name][what] * token_bytes / r[ours]["read_bytes_per_second"] for r in results)
    return {"ours": share(ours), "peer": share(peer)}
