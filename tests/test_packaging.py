import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import metadata, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import skvfl

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("dp", "frames", "plot", "progress", "remote", "sql")
# Distributions whose modules have another name.
NAMES = {"sklearn": "scikit-learn", "grpc": "grpcio"}


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


def test_import_needs_no_extra_and_loads_no_torch():
    extras = ["duckdb", "grpc", "matplotlib", "pandas", "polars", "pyarrow", "rich"]
    code = f"import sys; sys.modules.update(dict.fromkeys({extras}));"
    code += "import skvfl, skvfl.datasets, skvfl.exceptions, skvfl.federation;"
    code += "print([name for name in ('torch', 'skorch') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout.strip() == "[]"


def specifiers(*extras):
    """Distributions that skvfl and some of its extras require -> their versions."""
    found = {}
    for line in metadata("skvfl").get_all("Requires-Dist"):
        requirement = Requirement(line)
        marker = requirement.marker
        if not marker or any(marker.evaluate({"extra": extra}) for extra in extras):
            found[canonicalize_name(requirement.name)] = requirement.specifier
    found.pop("skvfl", None)
    return found


def requirements(*extras):
    """Names of the distributions that skvfl and some of its extras require."""
    return set(specifiers(*extras))


def pins(file):
    """Distributions that a file of constraints pins -> their versions."""
    lines = (ROOT / file).read_text().splitlines()
    pinned = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): number for name, number in pinned}


def test_constraints_pin_every_requirement():
    assert requirements(*EXTRAS, "test", "docs") <= pins("constraints.txt").keys()


def test_lowest_versions_are_the_declared_ones():
    declared = {
        name: specifier.version
        for name, allowed in specifiers(*EXTRAS, "test").items()
        for specifier in allowed
        if specifier.operator == ">="
    }
    assert pins("constraints-lowest.txt") == declared


def test_every_import_is_a_requirement():
    at_the_top, anywhere = set(), set()
    for path in ROOT.glob("skvfl/**/*.py"):
        tree = ast.parse(path.read_text())
        at_the_top |= imported_distributions(tree.body)
        anywhere |= imported_distributions(ast.walk(tree))
    assert at_the_top <= requirements()
    assert anywhere <= requirements("frames", "plot", "progress", "remote", "sql")


def imported_distributions(nodes):
    modules = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    names = {module.split(".")[0] for module in modules}
    names -= {"skvfl", *sys.stdlib_module_names}
    return {NAMES.get(name, name) for name in names}


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
