"""The example of three companies, played from keys to prediction."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "between_organisations"


@pytest.mark.slow
def test_three_companies_learn_together(tmp_path):
    played = subprocess.run(
        ["bash", EXAMPLE / "run.sh", tmp_path / "work"],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    said = played.stdout
    scores = {
        name.strip(): float(score)
        for name, score in re.findall(r"^  (.+?) +(0\.\d+)", said, re.MULTILINE)
    }
    for method in ("FedOnce", "SplitNN"):
        apart = scores[f"{method}, between organisations"]
        assert apart > scores["bank alone"] + 0.1
        assert apart == pytest.approx(scores[f"{method}, simulation"], abs=0.03)
    assert "customers predicted" in said
    assert "'rap' is not allowed; allowed are fedonce, splitnn" in said
    # Nothing of the telecom's is in any file of the others, and no id in its own log.
    work = tmp_path / "work"
    for needle in (b"Example Street", b"family"):
        assert needle in (work / "telecom" / "telecom.csv").read_bytes()
        for other in ("bank", "shop"):
            assert not any(needle in each for each in _contents(work / other))
    audit = (work / "telecom" / "audit.jsonl").read_text()
    assert not re.search(r"\b[1-9]\d{4}\b", _without_bytes(audit))


def _contents(folder):
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def _without_bytes(audit):
    return re.sub(r'"(bytes_\w+|time|model)": ("[^"]*"|\d+)', "", audit)


def test_files_of_the_example_say_what_has_meaning(tmp_path):
    from skvfl.remote._config import PartyConfig

    for name in ("bank", "telecom", "shop"):
        config = PartyConfig.load(EXAMPLE / name / f"{name}.toml")
        assert config.name == name
    assert config.peers["bank"].dial
