"""The command line of the scripts, and the lines that they print and record."""

import argparse
import json
from pathlib import Path

import torch
from _measure import streams
from threadpoolctl import threadpool_limits

RECORDS = Path(__file__).parents[2] / "docs" / "benchmarks"


def command(doc, *, page=True, parts=()):
    """Return the parser of a script with this documentation."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--quick", action="store_true", help="little, nothing kept")
    if page:
        help = "measure nothing, write the page from the recorded run"
        modes.add_argument("--write-docs", action="store_true", help=help)
    if parts:
        help = f"only these, nothing kept: {', '.join(parts)}"
        parser.add_argument("parts", nargs="*", metavar="part", help=help)
    return parser


def run(options, record, measure, write_page=None):
    """Measure with one thread, print the lines, and record a full run; then the page.

    ``measure`` yields the lines of a quick or a full run, or of some of its parts.
    """
    if not getattr(options, "write_docs", False):
        parts = getattr(options, "parts", None)
        lines = [*printed(measure, options.quick, *([parts] if parts else []))]
        if options.quick or parts:
            return
        write_lines(record, lines)
    if write_page:
        write_page(read(record))


def resume(options, record, measure, key, write_page):
    """As ``run``, but append what the record lacks, line by line.

    ``measure`` is also given the keys of all recorded lines, which it leaves out: a run
    may be stopped and started again, and wrong lines may be deleted. Lines name their
    streams, as those recorded before may have been made with others.
    """
    if not options.write_docs:
        done = set() if options.quick else set(map(key, read(record)))
        for line in printed(measure, options.quick, done):
            if not options.quick:
                write_lines(record, [{**line, "streams": streams()}], mode="a")
    if not options.quick:
        write_page(read(record))


def printed(measure, *arguments):
    """Yield the lines of a measurement with one thread, after printing them."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for line in measure(*arguments):
            print(written(line), end="", flush=True)
            yield line


def written(line):
    """Return a line of the record; NumPy's numbers become Python's."""
    return json.dumps(line, default=float) + "\n"


def write_lines(record, lines, mode="w"):
    """Write lines to a record, or append them."""
    with (RECORDS / f"{record}.jsonl").open(mode, encoding="utf-8") as file:
        file.writelines(map(written, lines))


def read(record):
    """Return the lines of a record, of which there may be none yet."""
    path = RECORDS / f"{record}.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def newest(lines, key):
    """Return the last line on everything; what was made again with other streams wins.

    ``key`` is a function of a line that looks at its streams, too.
    """
    return [*{key({**line, "streams": "any"}): line for line in lines}.values()]


def keep_newest(record, key):
    """Leave out of a record what was made again with other streams."""
    write_lines(record, newest(read(record), key))


def select(lines, **where):
    """Return the lines that agree in these fields."""
    return [x for x in lines if all(x.get(k) == v for k, v in where.items())]


def one(lines, **where):
    """Return the only line that agrees in these fields."""
    (line,) = select(lines, **where)
    return line
