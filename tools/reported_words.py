"""Count the words of reports whose cause is known: makes src/whichrank/facts/reported_words.txt.

    python tools/reported_words.py [--add] FOLDER…

--add counts them in beside those of the table, whose texts need not be at hand. A FOLDER holds `logs/NAME/` (files as
users hand them over) and `truth/NAME.json` ({"cause": [best first, …]}). Only words that occur in two reports or more
are kept, so that no name of a user, host or path gets into the table.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from whichrank.facts.closest_cause import UNIT, passages_of_causes, rarities, reported, weighed, words
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.unexplained import new_lines

TABLE = Path(__file__).resolve().parent.parent / "src" / "whichrank" / "facts" / "reported_words.txt"
IN_REPORTS = 2


def main(arguments: list[str]) -> None:
    add = arguments[:1] == ["--add"]
    reports = [report for folder in arguments[add:] for report in labelled(Path(folder))]
    known, before, number = reported() if add else ([], Counter[str](), 0)
    having = Counter(word for _, counts in reports for word in counts)
    kept = before + Counter({word: count for word, count in having.items() if count >= IN_REPORTS or word in before})
    told = [Counter(words(text)) for _, text in passages_of_causes()]
    number += len(reports)
    rarity = rarities(kept + Counter(w for counts in told for w in counts), number + len(told))
    weights: dict[str, Counter[str]] = defaultdict(Counter)
    for cause, of_cause in known:
        weights[cause].update(of_cause)
    for cause, counts in reports:
        weights[cause].update({w: x for w, x in weighed(counts, rarity).items() if w in kept})
    table = [f"{number} " + " ".join(f"{word}={count}" for word, count in sorted(kept.items()))]
    for cause, of_cause in sorted(weights.items()):
        pairs = [f"{word}={round(UNIT * x)}" for word, x in sorted(of_cause.items()) if round(UNIT * x)]
        table.append(f"{cause} " + " ".join(pairs))
    TABLE.write_text("\n".join(table) + "\n", encoding="utf-8")
    print(f"{number} reports, {len(kept)} words, {len(weights)} causes: {TABLE.stat().st_size} bytes")


def labelled(folder: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Cause and words of every report in a folder."""
    for truth in sorted((folder / "truth").glob("*.json")):
        cause = json.loads(truth.read_text())["cause"]
        cause = cause if isinstance(cause, str) else cause[0]
        if cause in causes() and cause not in ("healthy", "unknown"):
            files = [path for path in sorted((folder / "logs" / truth.stem).rglob("*")) if path.is_file()]
            lines = new_lines((path.name, path.read_bytes()) for path in files)
            yield cause, Counter(word for _, _, line in lines for word in words(line))


if __name__ == "__main__":
    main(sys.argv[1:])
