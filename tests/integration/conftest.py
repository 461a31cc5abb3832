import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import node as node_library  # noqa: E402
from node import REPO, Node, compile_api  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--bin", default="build/release/bin", help="directory of the moestro binaries")
    parser.addoption("--sanitizer", action="store_true",
                     help="the binaries have a sanitizer: skips tests marked no_sanitizer and waits longer")


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: in the first tier of tests/run, which leaves out all others")
    config.addinivalue_line("markers", "serial: needs the machine for itself; runs after all others, alone")
    config.addinivalue_line("markers", "no_sanitizer(reason): cannot hold in binaries with a sanitizer")
    if config.getoption("--sanitizer"):
        node_library.SLOWNESS = 10


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
    return compile_api(tmp_path_factory.mktemp("proto"))


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
