"""tests/tiers.py: which tests a command chooses, and what it needs built for them."""

import subprocess
import sys

import pytest

from tiers import REPO, TESTS, Steps, mirrored, read_tests, select, targets, with_tests

# As CMake 3.25 writes them.
OF_KV = """# CMake generated Testfile
add_test([=[kv_test]=] "{build}/tests/kv_test")
set_tests_properties([=[kv_test]=] PROPERTIES  WORKING_DIRECTORY "/src" _BACKTRACE_TRIPLES "/src/CMakeLists.txt;1;add_test;")
add_test([=[pool_test.ref]=] "{build}/tests/pool_test")
set_tests_properties([=[pool_test.ref]=] PROPERTIES  ENVIRONMENT "MOESTRO_ISA=ref" LABELS "ref_table" SKIP_RETURN_CODE "77")
add_test([=[pool_test.avx2]=] "{build}/tests/pool_test")
set_tests_properties([=[pool_test.avx2]=] PROPERTIES  LABELS "every_table" WORKING_DIRECTORY "/src")
add_test([=[pool_test.best]=] "{build}/tests/pool_test")
set_tests_properties([=[pool_test.best]=] PROPERTIES  LABELS "best_table")
"""
OF_ALL = """add_test([=[whole]=] "/usr/bin/python3" "{build}/compile_commands.json" "{build}/tests")
set_tests_properties([=[whole]=] PROPERTIES  LABELS "slow")
"""


@pytest.fixture
def build(tmp_path):
    for folder, text in (("common/kv", OF_KV), (".", OF_ALL)):
        (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / folder / "CTestTestfile.cmake").write_text(text.format(build=tmp_path))
    return tmp_path


@pytest.mark.parametrize("folder, found", [("common/kv", "common/kv"), ("common", "common"), ("services", "services"),
                                           ("common/kv/sub/pool_test.cc", "common/kv"), ("common/k", "common")])
def test_a_folder_without_tests_of_its_own_takes_those_above_it(build, folder, found):
    assert with_tests(read_tests(build), folder) == found


@pytest.mark.parametrize("everything, folders, chosen", [
    (False, [], {"kv_test", "pool_test.ref", "pool_test.best"}),
    (False, ["common/kv"], {"kv_test", "pool_test.best"}),
    (False, ["common"], {"kv_test", "pool_test.best"}),
    (False, ["common/k"], set()),
    (True, [], {"kv_test", "pool_test.ref", "pool_test.avx2", "whole"}),
    (True, ["common/kv"], {"kv_test", "pool_test.ref", "pool_test.avx2"}),
], ids=str)
def test_tiers(build, everything, folders, chosen):
    assert {test.name for test in select(read_tests(build), everything, folders)} == chosen


def test_every_test_is_in_the_whole_tier_or_repeats_one_that_is(build):
    left_out = set(read_tests(build)) - {test.name for test in select(read_tests(build), True, [])}
    assert left_out == {"pool_test.best"}


def test_what_is_built_for_them(build):
    tests = read_tests(build)
    assert targets([tests["kv_test"], tests["pool_test.ref"], tests["pool_test.best"]], build) == [
        "tests/kv_test", "tests/pool_test"]
    (build / "compile_commands.json").touch()
    assert targets([tests["whole"]], build) == ["compile_commands.json"]


@pytest.mark.parametrize("path, mirror", [
    ("common/kv", "common/kv"),
    ("common/kv/no_such_file.cc", "common/kv"),
    ("tests/common/kv", "common/kv"),
    ("services/router", "services/router"),
    ("tests/integration/test_http.py", "integration/test_http.py"),
    ("LICENSE", None),
])
def test_what_mirrors_a_path(path, mirror):
    assert mirrored(REPO / path) == mirror


@pytest.mark.parametrize("path, message", [("no/such/folder", "no such folder or file"), ("LICENSE", "with tests")])
def test_a_path_without_tests_is_refused(path, message):
    result = subprocess.run([sys.executable, TESTS / "tiers.py", path], cwd=REPO, capture_output=True, text=True)
    assert result.returncode == 2 and path in result.stderr and message in result.stderr


def test_steps_are_counted_and_failures_kept():
    steps = Steps()
    assert steps.run("burn", [sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"])
    assert not steps.failed
    assert not steps.run("fail", ["false"])
    assert steps.run("go on", ["true"]) and steps.failed
    [(name, wall, cpu), *_] = steps.rows
    assert name == "burn" and wall > 0.25 and cpu > 0.25 and "burn" in steps.text()
