"""The tables of `bench churn`, in Markdown, a column or a group of columns for each side."""

from __future__ import annotations

from collections.abc import Callable

from bench.driver import CYCLE, ECHO, FAILED, PLACED
from bench.happenings import MIX, OUTSIDE
from bench.printed import table
from bench.samples import Samples
from bench.side import Result, Size

ALL = "all from outside"
INSIDE = (ECHO, FAILED, CYCLE)

Results = dict[str, Result]


def events(results: Results) -> str:
    """The cost of each kind of event under load."""
    rows = {kind: [_samples(result, kind) for result in results.values()] for kind in (*OUTSIDE, ALL, *INSIDE)}
    return _compared("event", list(results), rows)


def alone(results: Results) -> str:
    """The cost of each kind of event alone, with all its consequences."""
    rows = {kind: [result.alone.get(kind) for result in results.values()] for kind in MIX}
    return _compared("event by itself", list(results), rows)


def _compared(heading: str, names: list[str], kinds: dict[str, list[Samples | None]]) -> str:
    headings = [heading]
    for name in names:
        headings += [f"{name}: seen", "p50 ms", "p99 ms", "p99.9 ms", "worst ms"]
    if len(names) > 1:
        headings.append("mean, {} / {}".format(*names))
    rows = []
    for kind, found in kinds.items():
        if any(found):
            rows.append([kind, *(cell for each in found for cell in _cells(each))])
            if len(names) > 1:
                rows[-1].append(_ratio(*(each.mean if each else 0.0 for each in found)))
    return table(headings, rows)


def _samples(result: Result, kind: str) -> Samples | None:
    return result.any if kind == ALL else result.kinds.get(kind)


def _cells(samples: Samples | None) -> list[str]:
    if samples is None:
        return ["0", "", "", "", ""]
    ranks = (samples.p50, samples.p99, samples.p999, samples.worst)
    return [f"{samples.count:,}", *(_ms(each) for each in ranks)]


def figures(results: Results, size: Size) -> str:
    """All other figures, beside their goals."""
    rows: list[tuple[str, Callable[[Result], float | None], str, str]] = [
        (f"start: {size.nodes:,} nodes, s", lambda each: each.nodes_seconds, ".2f", ""),
        ("start: the pods that run, s", lambda each: each.pods_seconds, ".2f", ""),
        ("start: both, s", lambda each: each.nodes_seconds + each.pods_seconds, ".2f", "3"),
        ("pods that ran then", lambda each: each.running, ",.0f", ""),
        ("pods that waited when the churn began", lambda each: each.waiting, ",.0f", ""),
        ("CPU until so many waited, s", lambda each: each.fill, ".1f", ""),
        ("events from outside", lambda each: each.events, ",.0f", ""),
        (f"behind after them, at {size.rate:,.0f} events/s, s", lambda each: each.behind, ",.3f", "0"),
        ("events/s in a flood", lambda each: each.flood / each.flooded, ",.0f", "at least 2,000"),
        ("p99.9 of events, ms", lambda each: _of(each.any).p999 * 1e3, ",.2f", "5"),
        ("longest single call, ms", lambda each: max(kind.worst for kind in each.kinds.values()) * 1e3, ",.2f", ""),
        ("pods that left", lambda each: each.left, ",.0f", ""),
        ("reports", lambda each: each.reports, ",.0f", ""),
        ("reports in one second, at most", lambda each: each.most_reports, ",.0f", ""),
        ("longest until told why, s", lambda each: each.reported_after, ",.2f", f"{size.bound:g}"),
        ("garbage collections", lambda each: each.collections, ",.0f", ""),
        ("longest collection, ms", lambda each: each.longest_collection * 1e3, ",.1f", ""),
        *((f"{count:,} NodeSeen, s", _growth(count), ".2f", "") for count in size.growth),
        ("a node among the most / among the fewest", lambda each: _steepness(each.growth), ".2f", "1"),
        (f"nodes that joined while pods waited, of {size.nodes:,}", lambda each: _of(each.joins).count, ",.0f", ""),
        ("a node that joins, ms", lambda each: _of(each.joins).mean * 1e3, ",.2f", ""),
        ("the worst of them, ms", lambda each: _of(each.joins).worst * 1e3, ",.2f", ""),
        *((f"arrival with {count:,} shapes, ms", _arrival(count), ".3f", "") for count in (size.few, size.many)),
        ("many shapes / few", lambda each: _ratio_of(_arrival(size.many)(each), _arrival(size.few)(each)), ".2f", "2"),
        ("memory, MiB", lambda each: each.memory_mib, ",.0f", ""),
    ]
    body = []
    for name, read, form, goal in rows:
        values = [read(result) for result in results.values()]
        body.append([name, *("" if each is None else format(each, form) for each in values)])
        if len(results) > 1:
            body[-1].append(_ratio(*(each or 0.0 for each in values)))
        body[-1].append(goal)
    ratio = ["{} / {}".format(*results)] if len(results) > 1 else []
    return table(["", *results, *ratio, "goal"], body)


def ledgers(results: Results) -> str:
    """The state of the cores' ledgers after the churn."""
    return "".join(f"{name}: {result.ledger}.\n" for name, result in results.items())


def _growth(count: int) -> Callable[[Result], float | None]:
    return lambda result: result.growth.get(count)


def _steepness(growth: dict[int, float]) -> float | None:
    """How much more each node costs in the largest cluster; 1 if the growth is linear."""
    if len(growth) < 2:
        return None
    few, many = min(growth), max(growth)
    return _ratio_of(growth[many] / many, growth[few] / few)


def _arrival(shapes: int) -> Callable[[Result], float | None]:
    """Milliseconds of an arrival that was placed, on average."""

    def read(result: Result) -> float | None:
        samples = result.arrivals.get(shapes, {}).get(PLACED)
        return samples.mean * 1e3 if samples else None

    return read


def _of(samples: Samples | None) -> Samples:
    assert samples is not None, "a finished side has measured it"
    return samples


def _ratio_of(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _ratio(one: float, other: float) -> str:
    return f"{one / other:,.2f}" if one and other else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"
