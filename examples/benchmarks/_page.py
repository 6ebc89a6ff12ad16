"""Tables and pages of the benchmarks, from recorded lines."""

from pathlib import Path

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs" / "benchmarks"
MINUS = "\N{MINUS SIGN}"


def write(page, **fields):
    """Write a page: its text in the folder ``pages``, with these fields filled in."""
    text = (HERE / "pages" / f"{page}.rst").read_text(encoding="utf-8")
    (PAGES / f"{page}.rst").write_text(text.format(**fields), encoding="utf-8")


def listing(title, header, rows):
    """Return a table in reStructuredText."""
    lines = [f".. list-table:: {title}", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        marks = ["   * -", *["     -"] * (len(row) - 1)]
        lines += [f"{mark} {cell}" for mark, cell in zip(marks, row, strict=True)]
    return "\n".join(lines)


def table(title, lines, columns):
    """Return a table with a row for every line.

    A column is a format of the line's fields, such as ``"{ratio:.2f}"``, or a function
    of the line.
    """
    rows = [[cell(line, column) for column in columns.values()] for line in lines]
    return listing(title, columns, rows)


def cell(line, column):
    """Return what one column says of a line."""
    return column(line) if callable(column) else column.format_map(line)


def rows_of(text):
    """Return the cells of a text's lines, which are parted by bars."""
    lines = text.strip().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def number(value, digits=2):
    """Write a number with a true minus sign."""
    return f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value, digits=2):
    """Write a difference with its sign."""
    return ("+" if value > 0 else "") + number(value, digits)


def spread(line):
    """Write the range of the repetitions."""
    return " to ".join(map(number, line["spread"]))


def met(answer, near=False, yes="yes", no="**no**"):
    """Say whether a bar is met, and whether these seeds cannot tell."""
    return (yes if answer else no) + ", within the noise" * bool(near)
