"""Reads docs/results: what the benches printed, and what the runs of the scorecard came to."""

import json
import re


class Refused(Exception):
    """Why results are not published."""


def one_version(results):
    """The version of all of them, by name. None if there are none."""
    versions = {}
    for name, version in results:
        versions.setdefault(version, []).append(name)
    for version, names in versions.items():
        if not re.fullmatch(r"src \w+, core \w+, (?:embedded \w+, )?lua \w+, cli \w+, Cargo\.lock \w+", version):
            raise Refused(f"of changed or unknown sources ({version!r}): {', '.join(names)}")
    if len(versions) > 1:
        each = "".join(f"\n  {version}: {', '.join(names)}" for version, names in versions.items())
        raise Refused(f"results of different versions:{each}")
    return next(iter(versions), None)


class Bench:
    """What one bench printed: the lines at the top, and its sections by their titles."""

    def __init__(self, text):
        self.head, self.sections = {}, {"": ""}
        head, _, body = text.partition("\n\n")
        for line in head.splitlines():
            what, _, value = line.removeprefix("- ").partition(": ")
            self.head[what] = value
        for part in re.split(r"^(?=## )", body, flags=re.MULTILINE):
            title = ""
            if part.startswith("## "):
                title, _, part = part[3:].partition("\n")
            self.sections[title] = part.strip("\n")

    def table(self, section, corner):
        """The rows of the table whose first head begins so, each a dictionary."""
        lines = iter(self.sections[section].splitlines())
        for line in lines:
            if line.startswith(f"| {corner}"):
                head = cells(line)
                next(lines)
                rows = []
                for row in lines:
                    if not row.startswith("|"):
                        break
                    rows.append(dict(zip(head[1:], cells(row)[1:])) | {"": cells(row)[0]})
                return rows
        raise Refused(f"no table {corner!r} in {section!r}")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def benches(root):
    """The results of all benches: `load`, or `compose/load` on containers."""
    folder = root / "docs/results/bench"
    found = {str(file.relative_to(folder))[:-3]: file for file in sorted(folder.rglob("*.md"))}
    all_of_them = {name: Bench(file.read_text()) for name, file in found.items()}
    one_version((name, bench.head.get("version", "")) for name, bench in all_of_them.items())
    return all_of_them


# What is added up over runs.
COUNTS = [
    "faults", "acquisitions", "overlaps", "lost", "vanished", "noticed_late", "releases_unknown",
    "releases_failed", "orphans", "stale_writes_accepted", "writes_refused",
]


class Line:
    """All runs of one variant of a row, on one server, by one backend."""

    def __init__(self, last, runs):
        self.row, self.title, self.variant = last["row"], last["title"], last["variant"]
        self.server, self.backend, self.promises = last["server"], last["backend"], last["promises"]
        # What a void run saw shows nothing.
        self.void = sum(1 for run in runs if run["void"])
        runs = [run for run in runs if not run["void"]]
        self.counts = {field: sum(run[field] for run in runs) for field in COUNTS}
        self.failed = {}
        for kind, count in (pair for run in runs for pair in run["failed"].items()):
            self.failed[kind] = self.failed.get(kind, 0) + count
        self.recoveries = sorted(time for run in runs for time in run["recovery_ns"])
        self.wait_p99 = max([run["wait_ns"]["p99"] or 0 for run in runs], default=0)
        self.stayed = [run["stayed"] for run in runs if run.get("stayed")]
        self.broken = sum(len(run["broken"]) for run in runs)


class Chaos:
    """The runs of the scorecard that are of the version of the last one."""

    def __init__(self, text, is_published=True):
        runs = [json.loads(line) for line in text.splitlines()]
        self.version = runs[-1]["version"]
        if is_published:
            one_version([("the last run", self.version)])
        self.runs = [run for run in runs if run["version"] == self.version]
        # The last run of a row says what the row is: one under other settings is of another row.
        last = {key(run): run for run in runs}
        self.lines = [
            Line(last[of], [run for run in self.runs if (key(run), settings(run)) == (of, settings(last[of]))])
            for of in sorted(last)
            if last[of]["version"] == self.version
        ]
        self.others = sorted(
            {
                f"{run['row']} {run['variant']}".strip() + f", {run['server']}, {run['backend']}"
                for run in last.values()
                if run["version"] != self.version
            }
        )

    def kinds(self):
        """The lines of each row by its name and whether it promises that holders do not overlap:
        first those that do."""
        kinds = {}
        for line in sorted(self.lines, key=lambda line: "NoOverlap" not in line.promises):
            kinds.setdefault((line.row, "NoOverlap" in line.promises), []).append(line)
        return kinds


def key(run):
    return tuple(run["place"]), run["server"], run["backend"]


def settings(run):
    return run["node_timeout_ms"], run["lease_ms"]


def everything(root):
    """The results of all benches, which are of one version, and those of the scorecard, which are of
    one version as well. Each page names its own."""
    found, runs = benches(root), chaos(root)
    one_version((name, bench.head["version"]) for name, bench in found.items())
    return found, runs


def chaos(root):
    """None as long as no run was kept."""
    file = root / "docs/results/chaos.jsonl"
    return Chaos(file.read_text()) if file.exists() else None
