#!/usr/bin/env python3
"""Enforces the include rules: arrows between folders point one way, services never include each other, gRPC, Prometheus
and JSON stay out of the engine, clients know only the public API, and one source includes CLI11. Run by ctest; prints
every violation.
check_links.py checks the binaries."""

import re
import sys
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
SUFFIXES = (".h", ".cc", ".cu", ".cuh")

# What a folder of common/ may include, besides itself.
MAY_INCLUDE = {
    "base": set(),
    "access": {"base"},
    "platform": {"base"},
    "tensor": {"base"},
    "kernels": {"base", "platform", "tensor"},
    "device": {"base"},
    "collective": {"base", "platform", "device"},
    "weights": {"base", "platform", "tensor"},
    "inference": set(),
    "kv": {"base", "platform", "tensor", "inference"},
    "model": {"base", "platform", "tensor", "kernels", "weights", "inference", "kv"},
    "experts": {"base", "tensor", "weights", "model"},
    "roofline": {"base", "tensor", "device", "weights", "inference", "kv", "model"},
    "engine": {"base", "platform", "tensor", "kernels", "device", "weights", "kv", "model", "roofline"},
    "text": {"base", "inference"},
    "batch": {"base", "text"},
    "checkpoint": {"base", "tensor", "weights", "model", "text"},
    "telemetry": {"base"},
    "report": {"base"},
    "process": {"base", "platform", "telemetry"},
    "rpc": {"base", "access", "platform", "weights", "inference", "telemetry", "process", "text"},
}
ENGINE = {"base", "platform", "tensor", "kernels", "device", "collective", "weights", "inference", "kv", "model",
          "experts", "roofline", "engine"}
PROCESS = {"base", "platform", "telemetry", "process", "rpc"}
# The same for folders outside common/: folders of common/, and others by their path. Services never include each other.
MAY_INCLUDE |= {
    "services/weight_store": PROCESS | {"tensor", "weights", "text", "checkpoint"},
    "services/prefill": PROCESS | ENGINE | {"text"},
    "services/decode": PROCESS | ENGINE | {"text"},
    "services/router": PROCESS | {"access", "inference", "text", "batch"},
    # The load generator is a client: it sees the public API only.
    "loadtest/client": {"base", "process", "rpc"},
    "loadtest/records": {"base"},
    "loadtest/workloads": {"base", "loadtest/client", "loadtest/records"},
    "loadtest/run": {"base", "loadtest/client", "loadtest/records", "loadtest/workloads"},
    "loadtest/metrics": {"base", "telemetry"},
    "loadtest/report": {"base", "report", "loadtest/records", "loadtest/workloads", "loadtest/metrics"},
    "loadtest/commands": {"base", "process", "report", "loadtest/client", "loadtest/records", "loadtest/workloads",
                          "loadtest/run", "loadtest/metrics", "loadtest/report"},
    "loadtest/main.cc": {"process", "rpc", "loadtest/commands"},
    "loadtest/bench": ENGINE | {"checkpoint", "report"},
    # The same for commands that talk to a node. Planning commands use each role's own simulation.
    "services/cli": PROCESS | {"access", "report", "loadtest/bench"},
    "services/cli/client": {"services/cli", "access", "base", "text", "batch", "telemetry", "report", "process", "rpc"},
    "services/cli/model": {"services/cli", "base", "platform", "process", "tensor", "kernels", "weights", "kv", "model",
                           "text", "roofline", "checkpoint", "report"},
    "services/cli/plan": {"services/cli", "services/cli/model", "base", "process", "tensor", "weights", "device", "model",
                          "experts", "roofline", "text", "checkpoint", "report", "services/*/simulate*.h"},
    "services/cli/routing": {"services/cli", "base", "process", "model", "experts"},
    "services/cli/paper": {"services/cli", "services/cli/model", "services/cli/plan", "base", "weights", "model", "device",
                           "experts", "roofline", "checkpoint", "report", "loadtest/bench", "services/*/simulate*.h"},
}
NOT_IN_ENGINE = re.compile(r"<?\"?(grpc|grpcpp|google/protobuf|moestro/v1|prometheus|nlohmann|spdlog)/")
# The headers of CLI11 take seconds of every source that includes them.
CLI11 = re.compile(r"[<\"]CLI/")
INCLUDES_CLI11 = "common/process/flags.cc"
# The toolkit's headers are for device code: callers of kernels include the plain headers beside it.
CUDA_TOOLKIT = re.compile(r"<(cuda|cublas|curand)")
DEVICE_CODE = (".cu", ".cuh")
# Launches are made in one place only.
CUDA_KERNELS = "common/kernels/cuda/"
LAUNCHES_KERNELS = {"engine", "kernels"}
GRPC = re.compile(r"[<\"](grpc|grpcpp|moestro/v1)/")
STUBS = re.compile(r"[<\"](grpc|grpcpp)/|\.grpc\.pb\.h")  # without messages


def includes(path):
    return re.findall(r'^\s*#\s*include\s+([<"][^>"]+[>"])', path.read_text(errors="replace"), re.M)


def folder_of(name):
    """The folder or file whose rule applies to a path; for common/ without its "common/"."""
    parts = name.split("/")
    if parts[0] == "common":
        return parts[1]
    for length in (3, 2):
        if (folder := "/".join(parts[:length])) in MAY_INCLUDE:
            return folder
    return parts[0]


def is_adapter(name):
    """gRPC is for these only."""
    return name.endswith(("_rpc.cc", "_rpc.h")) or "/rpc/" in name or re.match(r"services/\w+/server\.cc$", name)


def flags_problems(path, name):
    for include in includes(path):
        if CLI11.match(include) and name != INCLUDES_CLI11:
            yield f"only {INCLUDES_CLI11} may include {include}"


def problems_of(path, name):
    folder = folder_of(name)
    if folder not in MAY_INCLUDE:
        yield f"{folder} has no rule"
        return
    for include in includes(path):
        target = include.strip('<>"')
        if target.startswith(("common/", "services/", "loadtest/")):
            other = folder_of(target)
            allowed = MAY_INCLUDE[folder] | {folder}
            if other not in allowed and not any(fnmatch(target, pattern) for pattern in allowed):
                yield f"may not include {target}"
        if target.startswith(CUDA_KERNELS) and folder not in LAUNCHES_KERNELS:
            yield f"may not launch {target}"
        if folder in ENGINE and NOT_IN_ENGINE.match(include):
            yield f"the engine may not include {include}"
        if folder == "kernels" and CUDA_TOOLKIT.match(include) and path.suffix not in DEVICE_CODE:
            yield f"only .cu and .cuh may include {include}"
        if not name.startswith("common/") and not is_adapter(name):
            if (STUBS if folder.startswith("services/cli") else GRPC).search(include):
                yield f"only adapters may include {include}"
            if name.startswith("loadtest/") and target.startswith("common/rpc/") and folder != "loadtest/main.cc":
                yield f"only adapters and main may include {include}"


def main():
    paths = sorted(p for top in ("common", "services", "loadtest", "tests") for p in REPO.glob(f"{top}/**/*")
                   if p.suffix in SUFFIXES)
    found = 0
    for path in paths:
        name = str(path.relative_to(REPO))
        for what in chain(flags_problems(path, name), [] if name.startswith("tests/") else problems_of(path, name)):
            print(f"{name}: {what}")
            found += 1
    print(f"{len(paths)} files, {found} violations")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
