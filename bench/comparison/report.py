"""The table: medians, spreads, ratios and shares of the limits, in Markdown. Reads results, measures
nothing."""

import statistics

from .cells import CELLS, HEARTH, PEERS, rows
from .models import SOURCES
from .run import LIMITS, QUIET_ENOUGH
from .weights import Costs


class Spread:
    """Median, least and largest of one metric over all rounds."""

    def __init__(self, values):
        self.median, self.low, self.high = statistics.median(values), min(values), max(values)
        self.n = len(values)

    def text(self, digits):
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


class Table:
    """The table of one model."""

    def __init__(self, results, key):
        self.results, self.key = results, key
        self.source = SOURCES[key]
        self.costs = Costs(**results.data["models"][key])
        self.notes = []

    def lines(self):
        turns = [t for t in self.results.data["turns"] if t["model"] == self.key]
        present = {t["engine"] for t in turns} | set(self.results.data["missing"])
        shown = ["mlx"] if self.source.mlx else [peer for peer in PEERS if peer != "mlx"]
        peers = [peer for peer in shown if peer in present]
        heads = ["", "Hearth", *(PEERS[peer] for peer in peers), "limit, share reached"]
        measured = {t["cell"] for t in turns}
        lines = [f"### {self.source.title}", "", _line(heads), _line(["---"] * len(heads))]
        for row in rows(self.source):
            if row.cell in measured:
                lines.append(_line([self._title(row), *self._figures(row, peers), self._limit(row)]))
        for peer in peers:
            if reason := self.results.data["missing"].get(peer):
                self.notes.append(f"{PEERS[peer]}: {reason}")
        return [*lines, "", *(f"{n}. {note}" for n, note in enumerate(self.notes, 1)), ""]

    def _title(self, row):
        cell = CELLS[row.cell].for_context(self.costs.context)
        return row.title.replace("after 8192", f"after {cell.depth}")

    def _spread(self, engine, cell, metric):
        turns = self.results.turns(self.key, cell, engine)
        values = [t["values"][metric] for t in turns if metric in t.get("values", {})]
        return Spread(values) if values else None

    def _figures(self, row, peers):
        ours = self._spread(HEARTH, row.cell, row.metric)
        yield ours.text(row.digits) if ours else self._reason(HEARTH, row.cell)
        for peer in peers:
            theirs, mark = self._spread(peer, row.cell, row.metric), ""
            if not theirs and row.in_process:
                theirs, mark = self._spread(peer, *row.in_process), " in process"
            if not theirs:
                yield self._reason(peer, row.cell)
            elif not ours or not row.compared:
                yield theirs.text(row.digits)
            else:
                ratio = theirs.median / ours.median if row.less else ours.median / theirs.median
                yield f"{theirs.text(row.digits)}{mark} {_judged(ratio, row.goals.get(peer))}"

    def _reason(self, engine, cell):
        """A number that points to why there is no figure."""
        errors = [t["error"] for t in self.results.turns(self.key, cell, engine) if "error" in t]
        if not errors:
            return "–"
        note = f"{PEERS.get(engine, 'Hearth')}, {cell}: {errors[-1]}"
        if note not in self.notes:
            self.notes.append(note)
        return f"no figure [{self.notes.index(note) + 1}]"

    def _limit(self, row):
        ours = self._spread(HEARTH, row.cell, row.metric)
        if ours and row.at_most is not None:
            return f"at most {row.at_most:g}: {'met' if ours.median <= row.at_most else 'NOT met'}"
        if not row.limit or not ours:
            return ""
        threads = self.results.data["about"]["threads"]
        if row.limit == "int8":
            limit, unit = self._spread(LIMITS, row.cell, "int8_peak"), "GMAC/s"
            needed = self.costs.prompt_macs * ours.median / 1e9
        else:
            limit, unit = self._spread(LIMITS, row.cell, f"bandwidth_{threads}"), "GB/s"
            cell = CELLS[row.cell].for_context(self.costs.context)
            needed = self.costs.decode_bytes(cell.depth, cell.n_gen) * ours.median / 1e9
        if not limit:
            return f"{needed:.1f} {unit}; limit not measured"
        share = needed / limit.median
        goal = f", goal {row.share:.0%}: {'met' if share >= row.share else 'NOT met'}" if row.share else ""
        return f"{needed:.1f} of {limit.text(1)} {unit} = {share:.0%}{goal}"


def _judged(ratio, goal):
    if goal is None:
        return f"**{ratio:.2f}×**"
    return f"**{ratio:.2f}×** (goal {goal:g}×: {'met' if ratio >= goal else 'NOT met'})"


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def report(results):
    """The whole text."""
    data = results.data
    about = data["about"]
    rounds = 1 + max((t["round"] for t in data["turns"]), default=-1)
    disturbed = sum(t["busy"] > QUIET_ENOUGH for t in data["turns"])
    lines = [
        f"Machine: {about.get('machine')}; {about.get('threads')} threads, nice {about.get('nice')}; "
        f"{rounds} rounds. During {disturbed} of {len(data['turns'])} turns, or just before, other programs "
        f"used more than {QUIET_ENOUGH} processors.",
        "",
        "Median (least–largest) over the rounds. **×** is how many times better Hearth is: more tokens "
        "per second, fewer milliseconds or bytes.",
        "",
    ]
    for key in SOURCES:
        if any(t["model"] == key for t in data["turns"]):
            lines += Table(results, key).lines()
        elif key in data["missing"]:
            lines += [f"### {SOURCES[key].title}", "", f"Not measured: {data['missing'][key]}", ""]
    return "\n".join(lines)
