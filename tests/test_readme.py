"""The README's examples print what it says, and its table is the package's."""

import contextlib
import io
import re
from pathlib import Path

from skvfl._methods import as_markdown

README = Path(__file__).parents[1] / "README.md"


def test_readme_examples_print_what_it_says():
    text = README.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    names = {}
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == expected


def test_readme_has_the_table_of_methods():
    assert as_markdown() in README.read_text(encoding="utf-8")
