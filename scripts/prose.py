"""The figures in sentences: which sentence has them, and from which result each comes."""

import re

from results import Refused


class Cells:
    """The cells of one column: those of the rows of that name, in the table that begins so."""

    def __init__(self, bench, table, row, column, decimals=None):
        self.bench, self.table, self.row, self.column, self.decimals = bench, table, row, column, decimals

    def of(self, benches):
        rows = [row for row in benches[self.bench].table("", self.table) if row[""] == self.row]
        if not rows:
            raise Refused(f"the result of {self.bench} has no row {self.row!r}")
        shown = lambda cell: cell if self.decimals is None else f"{float(cell):.{self.decimals}f}"
        return [shown(row[self.column]) for row in rows]


class Ratio:
    """One cell over another, in hundredths."""

    def __init__(self, above, below):
        self.bench, self.above, self.below = above.bench, above, below

    def of(self, benches):
        [above], [below] = self.above.of(benches), self.below.of(benches)
        return [f"{float(above) / float(below):.2f}"]


def cost(backend):
    return Cells("cost", "µs of the client", backend, "rwlease")


# A page, its sentence with a gap for each figure, and the figures.
SENTENCES = [
    (
        "README.md",
        "takes and releases it for reading in {} ns",
        [Cells("cached", "one task", "cached", "read")],
    ),
    (
        "docs/caching.md",
        "A local pair takes {} ns to read and {} ns to write",
        [Cells("cached", "one task", "cached", "read"), Cells("cached", "one task", "cached", "write")],
    ),
    (
        "docs/caching.md",
        "goes to another client in {} times a hand-off",
        [Cells("cached", "goals", "recall of an idle lease, of a hand-off", "measured", decimals=1)],
    ),
    (
        "docs/caching.md",
        "A key takes {} bytes with one cached holder, and {} with a plain one",
        [Cells("cached", "one holder", "cached", "read"), Cells("cached", "one holder", "plain", "read")],
    ),
    (
        "docs/backends.md",
        "takes {} of the processor time that it takes by the `redis` crate, and {} of what it takes by `fred`",
        [Ratio(cost("native"), cost("redis")), Ratio(cost("native"), cost("fred"))],
    ),
    (
        "docs/backends.md",
        "at 1, 64 and 512 tasks came to {}, {} and {} of those by `redis`",
        [Cells("backends", "pairs/s", "native", "of ours by `redis`")],
    ),
]

FIGURE = r"([\d.,]*\d)"


def filled(page, text, benches):
    """The text of this page with the figures of the results that there are."""
    for of, sentence, figures in SENTENCES:
        if of != page or not all(figure.bench in benches for figure in figures):
            continue
        values = [value for figure in figures for value in figure.of(benches)]
        words = [re.escape(part).replace(r"\ ", r"\s+") for part in sentence.split("{}")]
        pattern = "".join(f"({word}){FIGURE}" for word in words[:-1]) + f"({words[-1]})"
        found = re.findall(pattern, text)
        if len(found) != 1 or len(values) != len(words) - 1:
            raise Refused(f"{page} has {len(found)} places for {sentence!r} with {len(values)} figures")
        kept = found[0][::2]
        new = "".join(before + value for before, value in zip(kept, values)) + kept[-1]
        text = text.replace("".join(found[0]), new)
    return text
