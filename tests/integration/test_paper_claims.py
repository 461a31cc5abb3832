"""`moestro paper`: what its reports say of their own rows."""

import csv
import math
import re

import pytest

MOST_DEVIATION = {"predicted": 0.15, "exact": 0.01}  # services/cli/paper/claims.h


def verdict_of(row):
    """From the row's numbers and its bound."""
    if row["basis"] in ("fitted", "open"):
        return row["basis"]
    if row["as_built"] == "":
        return "miss"
    deviation = float(row["as_built"]) / float(row["paper"]) - 1
    excess = {"near": abs(deviation), "at most": max(0, deviation), "at least": max(0, -deviation)}[row["bound"]]
    if excess > MOST_DEVIATION[row["basis"]]:
        return "miss"
    return "not met" if row["bound"] != "near" and excess > 0 else "met"


@pytest.fixture(scope="module", params=["osdi", "moe-lightning", "hybrimoe", "trimoe"])
def report(request, cli, repo, tmp_path_factory):
    """Slow: the first test of each paper waits for its simulations."""
    out = tmp_path_factory.mktemp(request.param)
    text = cli("paper", request.param, "--out", out, cwd=repo).stdout
    with open(out / "claims.csv", newline="") as file:
        return request.param, text, list(csv.DictReader(file))


def test_verdicts_follow_from_the_numbers(report):
    _, _, rows = report
    assert len(rows) > 20
    for row in rows:
        assert row["verdict"] == verdict_of(row), row
        if row["deviation"]:
            assert math.isclose(float(row["deviation"]), float(row["as_built"]) / float(row["paper"]) - 1,
                                rel_tol=1e-3, abs_tol=1e-4), row


def test_fitted_rows_are_not_counted(report):
    _, text, rows = report
    counts = re.search(r"(\d+) claims are met within 15 %, (\d+) are missed, (\d+) limits are not kept but nearly; "
                       r"(\d+) are fitted, (\d+) open", text)
    verdicts = [verdict_of(row) for row in rows]
    assert [int(count) for count in counts.groups()] == [
        verdicts.count(verdict) for verdict in ("met", "miss", "not met", "fitted", "open")]
    for row in rows:
        if row["basis"] == "fitted":
            assert (row["verdict"], row["deviation"]) == ("fitted", ""), row


def test_misses_come_first(report):
    _, text, rows = report
    order = [{"miss": 0, "not met": 1}.get(row["verdict"], 2) for row in rows]
    assert order == sorted(order)
    misses = [abs(float(row["deviation"])) for row in rows if row["verdict"] == "miss" and row["deviation"]]
    assert misses == sorted(misses, reverse=True)
    for row in rows:
        assert row["claim"] in text


def test_exact_rows_are_equal(report):
    paper, _, rows = report
    exact = [row for row in rows if row["basis"] == "exact"]
    assert bool(exact) == (paper != "hybrimoe")
    assert [row["claim"] for row in exact if row["verdict"] != "met"] == []
