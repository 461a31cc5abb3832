import os
import subprocess
import sys
import importlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import node as node_library  # noqa: E402
from node import Api, Node  # noqa: E402

REPO = Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--bin", default="build/release/bin", help="directory of the moestro binaries")
    parser.addoption("--sanitizer", action="store_true",
                     help="the binaries have a sanitizer: skips tests marked no_sanitizer and waits longer")


def pytest_configure(config):
    config.addinivalue_line("markers", "no_sanitizer(reason): cannot hold in binaries with a sanitizer")
    if config.getoption("--sanitizer"):
        node_library.PATIENCE = 10


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--sanitizer"):
        return
    for item in items:
        if mark := item.get_closest_marker("no_sanitizer"):
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))


@pytest.fixture(scope="session")
def repo():
    return REPO


@pytest.fixture(scope="session")
def bin_dir(request):
    path = Path(request.config.getoption("--bin")).resolve()
    assert (path / "moestro-router").exists(), f"no binaries in {path}: build first"
    return str(path)


@pytest.fixture(scope="session")
def api(tmp_path_factory):
    """Python messages and stubs from proto/, made with the same protoc as the C++ ones."""
    out = tmp_path_factory.mktemp("proto")
    plugin = subprocess.run(["which", "grpc_python_plugin"], capture_output=True, text=True, check=True).stdout.strip()
    protos = sorted(str(p.relative_to(REPO / "proto")) for p in (REPO / "proto").rglob("*.proto"))
    subprocess.run(["protoc", "-I", str(REPO / "proto"), f"--python_out={out}", f"--grpc_out={out}",
                    f"--plugin=protoc-gen-grpc={plugin}", *protos], check=True)
    # The health messages live in package grpc.health.v1, whose folder would hide the grpc library: load them by path.
    sys.path.insert(0, str(out))
    modules = {}
    for name in ("types", "inference", "weight_store", "prefill", "decode"):
        modules[name] = importlib.import_module(f"moestro.v1.{name}_pb2")
    modules["inference_grpc"] = importlib.import_module("moestro.v1.inference_pb2_grpc")
    modules["decode_grpc"] = importlib.import_module("moestro.v1.decode_pb2_grpc")
    modules["prefill_grpc"] = importlib.import_module("moestro.v1.prefill_pb2_grpc")
    import grpc
    grpc.__path__.append(str(out / "grpc"))
    modules["health"] = importlib.import_module("grpc.health.v1.health_pb2")
    modules["health_grpc"] = importlib.import_module("grpc.health.v1.health_pb2_grpc")
    return Api(modules)


def run_cli(bin_dir, *arguments, check=True, **options):
    result = subprocess.run([os.path.join(bin_dir, "moestro"), *map(str, arguments)], capture_output=True, text=True,
                            timeout=options.pop("timeout", 120), **options)
    assert not check or result.returncode == 0, f"moestro {arguments}: {result.returncode}\n{result.stderr}"
    return result


@pytest.fixture(scope="session")
def cli(bin_dir):
    return lambda *arguments, **options: run_cli(bin_dir, *arguments, **options)


@pytest.fixture(scope="session")
def tiny_model(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    cli("make-model", "--preset", "tiny", "--seed", "1", "--out", path)
    return path


@pytest.fixture(scope="session")
def absorbed():
    """Flags that make every path bit-identical."""
    return {"prefill": ["--mla-form", "absorbed"]}


@pytest.fixture(scope="module")
def node(api, bin_dir, tiny_model, absorbed):
    with Node(api, bin_dir, tiny_model, absorbed) as running:
        yield running
    assert not running.shared_memory()


@pytest.fixture
def make_node(api, bin_dir, tiny_model):
    return lambda flags=None, model=None: Node(api, bin_dir, model or tiny_model, flags)
