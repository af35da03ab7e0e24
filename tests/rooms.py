"""The picture of the rooms in gq-design(7): each folder of modules, and the folders that it imports from.

``python -m tests.rooms`` writes it into the page; a test compares both.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict

from tests.test_tidy import CODE, ROOT, imports, module_name

PAGE = ROOT / "man" / "gq-design.7"
BEGIN, END = '.\\" rooms: begin\n', '.\\" rooms: end\n'
WIDTH = 72


def arrows() -> dict[str, set[str]]:
    """Room → the rooms that its modules import from, itself left out; rooms as paths."""
    modules = {module_name(path): path.parent.relative_to(ROOT).as_posix() for path in CODE}
    found: dict[str, set[str]] = defaultdict(set)
    for path in CODE:
        room = path.parent.relative_to(ROOT).as_posix()
        found[room] |= {modules[name] for name, _ in imports(path) if name in modules and not _is_package(name)}
        found[room].discard(room)
    return found


def _is_package(name: str) -> bool:
    return ROOT.joinpath(*name.split(".")).is_dir()


def picture() -> str:
    """The block of the page, in mdoc.  A room of the same package is named without the package."""
    lines = []
    for room, imported in sorted(arrows().items()):
        package = room.partition("/")[0]
        names = sorted(imported, key=lambda other: (not other.startswith(f"{package}/"), other))
        short = [other.removeprefix(f"{package}/") for other in names]
        text = f"{room} → {', '.join(short) or 'nothing'}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([".Bd -literal", *lines, ".Ed", ""])


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{picture()}{END}{after}")


if __name__ == "__main__":
    main()
