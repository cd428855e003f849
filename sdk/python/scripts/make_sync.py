"""Makes the blocking client in src/outlast/sync from the async one in src/outlast/aio, by replacing words.

Usage: make_sync.py [--check]. With --check nothing is written, and the exit code is 1 where a file differs.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src" / "outlast"
# The parts that differ are written by hand in both packages.
BY_HAND = {"io.py", "__pycache__"}
WORDS = [
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\b__aiter__\b", "__iter__"),
    (r"Iterable\[([^\]]*)\] \| Iterable\[\1\]", r"Iterable[\1]"),
    (r"import Iterable, Iterator, Iterable\b", "import Iterable, Iterator"),
    (r"import Iterator, Callable", "import Callable, Iterator"),
    (r"The async client\. The blocking client .* generated from it: scripts/make_sync\.py\.", "The blocking client."),
]
IMPORTS = re.compile(r"^from (\S+) import (\w+(?:, \w+)*)$", re.MULTILINE)
HEADER = "# @generated from outlast/aio by scripts/make_sync.py; change it there.\n"


def blocking(text: str) -> str:
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)

    def sort_names(match: re.Match[str]) -> str:
        # As ruff sorts them: constants, classes, then the rest.
        names = sorted(set(match[2].split(", ")), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        return f"from {match[1]} import {', '.join(names)}"

    return HEADER + IMPORTS.sub(sort_names, text)


def main() -> int:
    is_check = "--check" in sys.argv
    different = []
    for source in sorted((ROOT / "aio").glob("*.py")):
        if source.name in BY_HAND:
            continue
        target = ROOT / "sync" / source.name
        text = blocking(source.read_text())
        if not target.exists() or target.read_text() != text:
            different.append(target.name)
            if not is_check:
                target.write_text(text)
    if is_check and different:
        print(f"outlast/sync differs from outlast/aio in {', '.join(different)}; run scripts/make_sync.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
