"""What the scripts that write pages of the user guide share."""


def listing(title, header, rows):
    """Return a table in reStructuredText."""
    lines = [f".. list-table:: {title}", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        marks = ["   * -", *["     -"] * (len(row) - 1)]
        lines += [f"{mark} {cell}" for mark, cell in zip(marks, row, strict=True)]
    return "\n".join(lines)


def number(value, digits=2):
    """Write a number with a true minus sign."""
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")
