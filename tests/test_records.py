"""The command that makes samples of the benchmarks' records again."""

import argparse
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    """The command and what it reads records with, on a folder of our own."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "benchmarks"))
    import _record
    import check_records

    lines = [
        {"what": "machine", "streams": "abcd"},
        {"what": "score", "seed": 0, "mean": 80.0, "std": 1.0, "seeds": 4},
        {"what": "score", "seed": 1, "mean": 82.0, "std": 1.0, "seeds": 4},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "tiny.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.setattr(_record, "RECORDS", tmp_path)
    return check_records


def checked(scripts, monkeypatch, again, tolerance, seed=0):
    """Check a record of two lines of which one comes out like this."""
    line = {"what": "score", "seed": seed, "mean": again}
    check = scripts.Check(
        "tiny", "a mean", lambda: [line], ("what", "seed"), {"mean": tolerance}
    )
    monkeypatch.setattr(scripts, "CHECKS", [check])
    options = argparse.Namespace(quick=True, write_docs=False, parts=[])
    failed = scripts.main(options)
    (outcome,) = scripts.outcomes(check, scripts.read("tiny"))
    return failed, outcome


@pytest.mark.parametrize(
    ("again", "verdict"), [(80.0, "same"), (81.4, "within"), (81.5, "differs")]
)
def test_a_number_is_the_same_within_its_tolerance_or_differs(
    scripts, monkeypatch, capsys, again, verdict
):
    # Two standard errors of a difference of two means of four seeds are √2.
    tolerance = scripts.of_mean("std")
    failed, outcome = checked(scripts, monkeypatch, again, tolerance)
    assert outcome["verdict"] == verdict
    assert failed == (verdict == "differs")
    assert verdict in capsys.readouterr().out.splitlines()[-1]
    assert outcome["streams"] == "abcd"


def test_what_cannot_be_made_again_fails(scripts, monkeypatch):
    failed, outcome = checked(scripts, monkeypatch, 80.0, 100.0, seed=7)
    assert failed
    assert "tiny has 0 lines" in outcome["field"]


def test_the_spread_of_seeds_is_the_tolerance_of_one(scripts, monkeypatch):
    tolerance = scripts.of_seeds("what", field="mean")
    with pytest.raises(KeyError):
        tolerance({"what": "score"}, [{"what": "score"}])
    lines = scripts.read("tiny")
    assert tolerance(lines[1], lines) == pytest.approx(4)


def test_every_record_has_a_check(scripts):
    found = {path.stem for path in (ROOT / "docs" / "benchmarks").glob("*.jsonl")}
    checks = {check.record for check in scripts.CHECKS}
    assert checks == found - {scripts.OUTCOME}


def test_streams_are_named_by_what_they_deal(scripts, monkeypatch):
    import _measure
    from numpy.random import SeedSequence

    named = _measure.streams()
    assert named == _measure.streams()
    monkeypatch.setattr(_measure, "seed_sequence", lambda seed: SeedSequence(seed + 1))
    assert _measure.streams() != named
