"""Gather the words of whichrank's own patterns and tables: writes src/whichrank/facts/redaction/common_words.txt.

`scrub` renames no host and no user that is called like one of them, except where nothing else can stand: the
verdict depends on these words. Run it again when rules or readers are added; words that are there stay there.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "whichrank"
TARGET = PACKAGE / "facts" / "redaction" / "common_words.txt"
WORD = re.compile(r"[A-Za-z]{2,20}|[A-Z]?[a-z]{2,20}")


def main() -> None:
    words = set(TARGET.read_text(encoding="utf-8").split())
    for path in PACKAGE.rglob("*.py"):
        if "redaction" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                words.update(word.lower() for word in WORD.findall(re.sub(r"\\[bnrtwsdSDW]", " ", text)))
    for path in (*PACKAGE.glob("facts/**/*.csv"), *PACKAGE.glob("facts/signatures/*"), *PACKAGE.glob("facts/rules/*")):
        if path.name != "secret_tokens.csv":
            words.update(word.lower() for word in WORD.findall(path.read_text(encoding="utf-8")))
    TARGET.write_text("\n".join(sorted(words)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
