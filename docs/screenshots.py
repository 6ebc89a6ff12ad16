"""Screenshots of the built documentation by headless Chromium, to be looked at.

Usage: python docs/screenshots.py FOLDER [PAGE ...]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

BUILT = Path(__file__).parent / "_build" / "html"
PAGES = [
    "index",
    "which_method",
    "user_guide/fedonce",
    "generated/skvfl.FedOnceClassifier",
    "auto_examples/index",
    "benchmarks/index",
]
WIDTHS = {"desk": (1400, 1400), "phone": (500, 1100)}
OFFLINE = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def main(folder, *pages):
    """Take a picture of every page in every width."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages or PAGES:
        for kind, (width, height) in WIDTHS.items():
            picture = folder / f"{page.replace('/', '.')}.{kind}.png"
            with tempfile.TemporaryDirectory() as profile:
                subprocess.run(
                    [
                        "chromium",
                        "--headless",
                        *OFFLINE,
                        f"--user-data-dir={profile}",
                        f"--window-size={width},{height}",
                        f"--screenshot={picture}",
                        (BUILT / f"{page}.html").as_uri(),
                    ],
                    check=True,
                    capture_output=True,
                )
            print(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
