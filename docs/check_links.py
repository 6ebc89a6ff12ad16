"""Look up every link inside the built documentation: the file, and the place in it.

Usage: python docs/check_links.py [FOLDER]

Sphinx looks up references; this also sees links that are written as HTML. Links to
other sites need a network: ``make links``.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

BUILT = Path(__file__).parent / "_build" / "html"


class Page(HTMLParser):
    """What a page links to, and the places that can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = set(), {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        """Note down links and places."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def broken(folder):
    """Yield the page and the link of every link that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html")}
    for path, page in sorted(pages.items()):
        inside = path.relative_to(folder.resolve())
        if inside.parts[0] == "_static":  # a template of the theme
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            # From a module's source Sphinx leads back to the right page, but to a place
            # that it names after another class of the module.
            anywhere = target not in pages or inside.parts[0] == "_modules"
            place = unquote(parts.fragment)
            if not target.is_file() or not (anywhere or place in pages[target].places):
                yield inside, link


if __name__ == "__main__":
    found = [*broken(Path(*sys.argv[1:]) if sys.argv[1:] else BUILT)]
    for page, link in found:
        print(f"{page}: {link} leads nowhere", file=sys.stderr)
    sys.exit(bool(found))
