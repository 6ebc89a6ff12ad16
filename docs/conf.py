"""Sphinx configuration; the Makefile turns every warning into an error."""

import re
import sys
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

import skvfl
from skvfl._methods import as_rst

project = "skvfl"
author = "the skvfl developers"
copyright = "2026, the skvfl developers"
release = version = skvfl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]

sys.path.insert(0, str(Path(__file__).parent))  # the gallery's order


def from_markdown(name):
    """A file of the repository's root as reStructuredText, without its title.

    What is known of Markdown is what CHANGELOG.md and SECURITY.md use.
    """
    text = (ROOT / name).read_text(encoding="utf-8").partition("\n")[2]
    text = re.sub(r"`([^`]+)`", r"``\1``", text)
    text = re.sub(r"\[([^]]+)\]\(docs/([\w/]+)\.rst\)", r":doc:`\1 </\2>`", text)
    text = re.sub(r"\[([^]]+)\]\((https?:[^)]+)\)", r"`\1 <\2>`__", text)
    for marks, line in (("##", "-"), ("###", "~")):
        text = re.sub(
            rf"^{marks} \[?(.*?)\]?((?: - .*)?)$",
            lambda found, line=line: f"{found[1]}{found[2]}\n{line * 60}",
            text,
            flags=re.MULTILINE,
        )
    return text


# Pages include them: the package's own words on who sees what, and the repository's.
ROOT = Path(__file__).parents[1]
GENERATED = Path(__file__).parent / "generated"
GENERATED.mkdir(exist_ok=True)
for name, text in {
    "methods": as_rst(),
    "changelog": from_markdown("CHANGELOG.md"),
    "security": from_markdown("SECURITY.md"),
}.items():
    (GENERATED / f"{name}.inc").write_text(text + "\n", encoding="utf-8")

templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "skvfl"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["skvfl.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "skvfl"},
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {
    "getting_started": [],
    "which_method": [],
    "who_receives_what": [],
}

autodoc_typehints = "none"
# A class's methods stand below it: without its name they fit beside the page.
toc_object_entries_show_parents = "hide"
autosummary_generate = True
numpydoc_show_class_members = False

# Addresses in examples.
linkcheck_ignore = [r"https?://(localhost|host|proxy|scheduler)\b.*"]

# Other projects' names are not looked up: the documentation builds without a network.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(matplotlib|numpy|pandas|polars|scipy|sklearn|skorch|torch)\..*",
    ),
]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery_order.Order",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    # Which examples use it, below every entry of the reference.
    "backreferences_dir": "generated/examples",
    "doc_module": ("skvfl",),
}


PUBLIC = (
    "skvfl",
    "skvfl.federation",
    "skvfl.datasets",
    "skvfl.evaluation",
    "skvfl.exceptions",
)


def skip_foreign_members(app, what, name, obj, skip, options):
    """Leave out what is inherited from Python or scikit-learn."""
    function = getattr(obj, "fget", obj)
    module = getattr(function, "__module__", None) or ""
    return skip or not module.startswith("skvfl.")


def resolve_public_name(app, env, node, contnode):
    """Let a docstring of any module give a public name without its module."""
    python = env.domains["py"]
    kind, page = node.get("reftype"), node.get("refdoc")
    name = node.get("reftarget", "").rpartition("skvfl.")[2]
    for module in PUBLIC:
        full = f"{module}.{name}"
        if node.get("refdomain") == "py" and full in python.objects:
            return python.resolve_xref(
                env, page, app.builder, kind, full, node, contnode
            )
    return None


def show_inline(translator, node, *, as_block=False):
    """Write a formula as browsers read it, so that no page needs a network."""
    try:
        translator.body.append(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        logging.getLogger(__name__).warning(str(error), location=node)
    raise SkipNode


def show_block(translator, node):
    """Write a formula that stands by itself."""
    show_inline(translator, node, as_block=True)


def setup(app):
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("missing-reference", resolve_public_name)
