"""Screenshots of the built documentation by headless Chromium, to be looked at.

Usage: python docs/screenshots.py FOLDER [PAGE ...]

Every page is taken on a desk, in dark mode, and as wide as a phone. Needs ``chromium``
(``apt-get install chromium``); CHROMIUM names another browser of its kind.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT = Path(__file__).parent / "_build" / "html"
PAGES = [
    "index",
    "getting_started",
    "which_method",
    "who_receives_what",
    "user_guide/fedonce",
    "generated/skvfl.FedOnceClassifier",
    "api",
    "auto_examples/index",
    "auto_examples/plot_two_csv_files",
    "benchmarks/index",
]
# Width and height of the window, and what else the browser is told.
KINDS = {
    "desk": (1400, 1600, []),
    "dark": (1400, 1600, ["--blink-settings=preferredColorScheme=0"]),
    "phone": (430, 1300, []),
}
OFFLINE = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=5000",
]
# No window is as narrow as a phone, but a frame may be.
STYLE = "border:0;width:{}px;height:{}px"
FRAME = f'<body style="margin:0"><iframe src="{{}}" style="{STYLE}"></iframe>'


def main(folder, *pages):
    """Take a picture of every page in every kind."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages or PAGES:
        address = (BUILT / f"{page}.html").as_uri()
        for kind, (width, height, told) in KINDS.items():
            picture = folder / f"{page.replace('/', '.')}.{kind}.png"
            with tempfile.TemporaryDirectory() as profile:
                if kind == "phone":
                    frame = Path(profile) / "frame.html"
                    frame.write_text(FRAME.format(address, width, height))
                    shown = frame.as_uri()
                else:
                    shown = address
                subprocess.run(
                    [
                        os.environ.get("CHROMIUM", "chromium"),
                        "--headless",
                        *OFFLINE,
                        *told,
                        f"--user-data-dir={profile}",
                        f"--window-size={max(width, 500)},{height}",
                        f"--screenshot={picture}",
                        shown,
                    ],
                    check=True,
                    capture_output=True,
                )
            print(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
