"""What README, figures and papers to sign point at is there, and its commands work."""

import re
import runpy
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.version import Version

import skvfl
from skvfl._methods import METHODS
from skvfl.remote._cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """Lines that the README tells people to type, without their comments."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


def test_commands_are_found():
    assert {words[0] for words in commands()} == {
        "bash",
        "make",
        "pip",
        "python",
        "skvfl",
    }


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_the_readme_is_one(words, tmp_path, monkeypatch, capsys):
    first, *rest = words
    monkeypatch.chdir(tmp_path)
    if first == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert re.search(rf"^{rest[0]}:", makefile, re.MULTILINE)
    elif first == "bash":
        assert (ROOT / rest[0]).is_file()  # tests/remote/test_example.py runs it
    elif first == "python":
        assert find_spec(rest[1])
    elif first == "pip":
        # `make test-wheel` installs the one that is built.
        extras = re.search(r"\[(.*)\]$", rest[-1])[1].split(",")
        pyproject = (ROOT / "pyproject.toml").read_text()
        assert all(
            re.search(rf"^{extra} = \[", pyproject, re.MULTILINE) for extra in extras
        )
    else:
        made = main(rest)
        said = capsys.readouterr()
        if rest[1] == "keys":
            assert made == 0
            assert (tmp_path / "telecom.toml").is_file()
        else:
            # Nobody has filled in the file: it is asked for by its name.
            assert made == 1
            assert "telecom.toml" in said.err


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_figure_of_methods_links_to_pages_of_the_guide():
    figure = (ROOT / "docs/_static/which_method.svg").read_text(encoding="utf-8")
    links = re.findall(r'href="(.*?)\.html"', figure)
    named = " ".join(re.findall(r'class="name"[^>]*>(.*?)</text>', figure))
    assert not [each.name for each in METHODS if each.name not in named]
    assert len(links) == 8
    assert not [link for link in links if not (ROOT / f"docs/{link}.rst").exists()]


def test_the_citation_is_of_this_version():
    [version] = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), 8)
    assert version == Version(skvfl.__version__).base_version


def test_the_glossary_is_long_enough_and_in_order():
    text = (ROOT / "docs/glossary.rst").read_text(encoding="utf-8")
    terms = re.findall(r"^   (\S.*)$", text, re.MULTILINE)
    assert len(terms) >= 30
    assert terms == sorted(terms, key=lambda term: term.replace("_", " ").casefold())


def test_the_readme_shows_the_demo_with_every_method():
    """In each of its tables a row for every method of the demonstration, in order."""
    methods = runpy.run_path(str(ROOT / "examples" / "demo.py"))["METHODS"]
    (shown,) = re.findall(r"```text\n(two generated.*?)```", README, re.DOTALL)
    rows = re.findall(r"^  (\w+) +\d", shown, re.MULTILINE)
    assert rows == [*methods] * shown.count("accuracy ")
