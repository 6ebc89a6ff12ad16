"""``python -m skvfl`` is the command ``skvfl``."""

from skvfl.remote._cli import main

raise SystemExit(main())
