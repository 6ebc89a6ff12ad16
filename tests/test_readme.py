"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_readme_example_prints_what_it_says():
    text = README.read_text(encoding="utf-8")
    ((code, expected),) = re.findall(
        r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == expected
