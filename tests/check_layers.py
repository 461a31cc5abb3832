#!/usr/bin/env python3
"""Enforces the include rules: arrows between folders point one way, services never include each other, gRPC,
Prometheus and JSON stay out of the engine, and the load generator knows only the public API. Also: what each binary may
link. Run by ctest; prints every violation."""

import re
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
SOURCES = ("*.h", "*.cc", "*.cu", "*.cuh")

# What a folder of common/ may include, besides itself.
MAY_INCLUDE = {
    "base": set(),
    "platform": {"base"},
    "tensor": {"base"},
    "kernels": {"base", "platform", "tensor"},
    "device": {"base"},
    "collective": {"base", "platform", "device"},
    "weights": {"base", "platform", "tensor"},
    "kv": {"base", "platform", "tensor"},
    "model": {"base", "platform", "tensor", "kernels", "weights", "kv"},
    "text": {"base"},
    "telemetry": {"base"},
    "report": {"base"},
    "rpc": {"base", "platform", "weights", "telemetry"},
}
ENGINE = {"base", "platform", "tensor", "kernels", "device", "collective", "weights", "kv", "model"}
NOT_IN_ENGINE = re.compile(r"<?\"?(grpc|grpcpp|google/protobuf|moestro/v1|prometheus|nlohmann|spdlog|CLI)/")
# The command line links the weight store's libraries to look at checkpoints without a node, and to lay out a model to be
# timed, in these files.
USES_WEIGHT_STORE = ("services/cli/inspect.cc", "services/cli/bench/random_segment.cc")
WEIGHT_STORE_LIBRARIES = ("services/weight_store/checkpoint/", "services/weight_store/pack/")
# And what prefill and decode do on a device, to run it on a simulated one, or to plan with its formulas; and decode's
# caches, to run them on traces.
USES_PREFILL = (
    "services/cli/plan_command.cc",
    "services/cli/simulate_command.cc",
    "services/cli/simulate_ranks.cc",
    "services/cli/simulate_ranks.h",
)
PREFILL_LIBRARIES = ("services/prefill/distributed/", "services/prefill/stream/")
USES_DECODE = ("services/cli/simulate_decode.cc", "services/cli/routing_command.cc")
DECODE_LIBRARIES = ("services/decode/overlap/", "services/decode/experts/")
# The toolkit's headers are for device code: whoever launches kernels includes the plain headers beside it.
CUDA_TOOLKIT = re.compile(r"<(cuda|cublas|nccl|curand)")
DEVICE_CODE = (".cu", ".cuh")
# The router holds no engine.
ROUTER_MAY_USE = {"base", "platform", "text", "telemetry", "rpc"}
# The load generator is a client: it sees the public API only. Its folders, and what each may include of the others.
LOADTEST_MAY_USE = {"base", "report", "rpc", "telemetry"}
LOADTEST_MAY_INCLUDE = {
    "client": set(),
    "run": {"client", "workloads"},
    "workloads": {"client", "run", "report"},
    "metrics": set(),
    "report": {"run", "workloads", "metrics"},
    "commands": {"client", "run", "workloads", "metrics", "report"},
    "main.cc": {"commands"},
}


def includes(path):
    return re.findall(r'^\s*#\s*include\s+([<"][^>"]+[>"])', path.read_text(errors="replace"), re.M)


def problems():
    for path in sorted(p for pattern in SOURCES for p in REPO.glob(f"common/**/{pattern}")):
        folder = path.relative_to(REPO / "common").parts[0]
        for include in includes(path):
            target = include.strip('<>"')
            if target.startswith("services/"):
                yield path, f"common/ includes {target}"
            if target.startswith("common/"):
                other = target.split("/")[1]
                if other != folder and other not in MAY_INCLUDE[folder]:
                    yield path, f"common/{folder} may not include common/{other}"
            if folder in ENGINE and NOT_IN_ENGINE.match(include):
                yield path, f"the engine may not include {include}"
            if folder == "kernels" and CUDA_TOOLKIT.match(include) and path.suffix not in DEVICE_CODE:
                yield path, f"only .cu and .cuh may include {include}"
    for path in sorted(p for pattern in SOURCES for p in REPO.glob(f"services/**/{pattern}")):
        name = str(path.relative_to(REPO))
        service = path.relative_to(REPO / "services").parts[0]
        for include in includes(path):
            target = include.strip('<>"')
            if target.startswith("services/") and target.split("/")[1] != service:
                allowed = (name in USES_WEIGHT_STORE and target.startswith(WEIGHT_STORE_LIBRARIES)) or (
                    name in USES_PREFILL and target.startswith(PREFILL_LIBRARIES)) or (
                    name in USES_DECODE and target.startswith(DECODE_LIBRARIES))
                if not allowed:
                    yield path, f"services/{service} includes {target}"
            if service == "router" and target.startswith("common/") and target.split("/")[1] not in ROUTER_MAY_USE:
                yield path, f"the router includes {target}"
            adapter = name.endswith(("_rpc.cc", "_rpc.h")) or "/rpc/" in name or service == "cli" or name.endswith("server.cc")
            if not adapter and re.match(r"[<\"](grpc|grpcpp|moestro/v1)/", include):
                yield path, f"only adapters may include {include}"
    for path in sorted(p for pattern in SOURCES for p in REPO.glob(f"loadtest/**/{pattern}")):
        name = str(path.relative_to(REPO))
        folder = path.relative_to(REPO / "loadtest").parts[0]
        adapter = name.endswith("_rpc.cc")
        for include in includes(path):
            parts = include.strip('<>"').split("/")
            if parts[0] == "services":
                yield path, f"loadtest/ includes {include}"
            if parts[0] == "common" and parts[1] not in LOADTEST_MAY_USE:
                yield path, f"loadtest/ may not include common/{parts[1]}"
            if parts[0] == "common" and parts[1] == "rpc" and not adapter and folder != "main.cc":
                yield path, f"only adapters and main may include {include}"
            if parts[0] == "loadtest" and parts[1] != folder and parts[1] not in LOADTEST_MAY_INCLUDE[folder]:
                yield path, f"loadtest/{folder} may not include loadtest/{parts[1]}"
            if not adapter and re.match(r"[<\"](grpc|grpcpp|moestro/v1)/", include):
                yield path, f"only adapters may include {include}"


def main():
    found = list(problems())
    for path, what in found:
        print(f"{path.relative_to(REPO)}: {what}")
    if not any(REPO.glob("common/**/*.h")):
        print("no sources found")
        return 1
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
