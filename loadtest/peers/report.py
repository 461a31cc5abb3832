"""A comparison as JSON and as text."""

from rounds import NAMES, compare, shares, summary

SCHEMA = "moestro-peers-1"
# The least ratio to TARGET_PEER that a release must have, by the type of weights.
TARGET_PEER = "ik_llama.cpp"
TARGETS = {"q8_0": {"prompt": 1.1, "decode": 1.1}, "q4_k_m": {"prompt": 1.8, "decode": 1.4}}


def is_clean(revision):
    """Whether others have the sources that were measured."""
    return bool(revision) and not revision.endswith("-dirty")


def build(ours, peers, results, model, settings):
    token_bytes = {"decode": ours.facts["decode_token_bytes"], "experts_decode": ours.facts["experts_token_bytes"]}
    compared = []
    for peer in peers:
        rows = {}
        for what in peer.rows:
            rows[what] = compare(results, ours.name, peer.name, what)
            target = TARGETS.get(model["weights"], {}).get(what)
            if target is not None and peer.name == TARGET_PEER:
                rows[what]["target"] = target
                rows[what]["verdict"] = "pass" if rows[what]["ratio"]["median"] >= target else "miss"
            if what in token_bytes:
                rows[what]["share_of_read_bandwidth"] = shares(results, ours.name, peer.name, what, token_bytes[what])
        compared.append({**peer.describe(), "rows": rows})
    return {"schema": SCHEMA, "date": ours.facts["date"], "machine": ours.machine, "model": model,
            "settings": {"threads": settings.threads, "cores": sorted(settings.cores), "rounds": len(results),
                         "repetitions": settings.repetitions, "prompt_tokens": settings.prompt,
                         "int8_activations": settings.int8_activations,
                         "decode_tokens": settings.decode},
            "token_bytes": token_bytes, "prompt_operations": ours.facts["prompt_operations"],
            "read_bytes_per_second": summary(r[ours.name]["read_bytes_per_second"] for r in results),
            "segment_huge_pages_ratio": ours.facts["huge_pages_ratio"], "peers": compared, "rounds": results}


def _cell(values, digits):
    return f"{values['median']:.{digits}f} ({values['min']:.{digits}f} - {values['max']:.{digits}f})"


def text(report):
    machine, model, settings = report["machine"], report["model"], report["settings"]
    read = report["read_bytes_per_second"]
    lines = [f"{machine['cpu_model']} (family {machine['cpu_family']}, model {machine['cpu_number']}), kernels "
             f"{machine['kernels_isa']}, {settings['threads']} threads on cores "
             f"{','.join(map(str, settings['cores']))}, revision {machine['revision'] or 'unknown'}",
             f"{model['architecture']}, {model['weights']}, {model['bytes'] / 1e9:.2f} GB; "
             f"{report['token_bytes']['decode'] / 1e6:.1f} MB a decoded token; read bandwidth "
             f"{read['median'] / 1e9:.1f} GB/s; {100 * report['segment_huge_pages_ratio']:.0f} % of our segment on huge pages",
             f"median (min - max) of {settings['rounds']} rounds; tok/s, ratio round by round", ""]
    for peer in report["peers"]:
        lines += [f"{peer['name']} ({peer['build']}) {' '.join(peer['arguments'])}".rstrip(), "",
                  "| | moestro | peer | ratio | target |", "|---|---|---|---|---|"]
        for what, row in peer["rows"].items():
            name = NAMES[what].format(**settings)
            target = f"{row['target']}: {row['verdict']}" if "target" in row else ""
            lines.append(f"| {name} | {_cell(row['ours'], 1)} | {_cell(row['peer'], 1)} | {_cell(row['ratio'], 2)} | "
                         f"{target} |")
            if share := row.get("share_of_read_bandwidth"):
                lines.append(f"| its share of read bandwidth | {_cell(share['ours'], 2)} | {_cell(share['peer'], 2)} "
                             "| | |")
        lines.append("")
    return "\n".join(lines)
