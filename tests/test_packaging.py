import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import skvfl

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Members of a wheel built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "skvfl",
        source / "skvfl",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    (source / "tests").mkdir()
    (source / "tests" / "test_nothing.py").touch()
    (source / "skvfl" / "table.csv").touch()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-index", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(command, check=True)
    [built] = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return built, archive.namelist()


def test_wheel_is_pure_python(wheel):
    assert wheel[0].name == f"skvfl-{skvfl.__version__}-py3-none-any.whl"


def test_wheel_holds_the_package_and_nothing_else(wheel):
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("skvfl/**/*.py")}
    packaged = {name for name in wheel[1] if ".dist-info/" not in name}
    assert packaged == modules | {"skvfl/py.typed"}


def test_wheel_carries_the_licence(wheel):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel[1])


def test_version_and_licence_of_the_installed_package():
    assert version("skvfl") == skvfl.__version__
    assert metadata("skvfl")["License-Expression"] == "BSD-3-Clause"


def test_import_is_light():
    heavy = ["torch", "pandas", "matplotlib", "rich", "polars", "pyarrow"]
    code = f"import sys, skvfl; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[]"


def test_constraints_pin_every_dependency():
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    required = {
        re.match(r"[\w.-]+", requirement)[0].lower()
        for requirement in metadata("skvfl").get_all("Requires-Dist")
    }
    assert required - {"skvfl"} <= pinned


def documented_names():
    """Module -> names that docs/api.rst lists for it."""
    names = {}
    for line in (ROOT / "docs" / "api.rst").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            listed = names.setdefault(line.split()[-1], set())
        elif re.fullmatch(r"   \w+", line):
            listed.add(line.strip())
    return names


@pytest.mark.parametrize("module", documented_names())
def test_every_public_name_has_an_api_page(module):
    imported = importlib.import_module(module)
    classes = [
        name
        for name, value in vars(imported).items()
        if inspect.isclass(value) and value.__module__ == module
    ]
    public = set(getattr(imported, "__all__", classes))
    if module != "skvfl":
        public -= set(skvfl.__all__)
    assert documented_names()[module] == public
