"""`subak queues`: what each queue holds of what it deserves, who waits in it, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from subak.batch.amounts import fits
from subak.batch.capacity import card_part
from subak.batch.overview import MISSING, JobView, QueueView, jobs_of, overview
from subak.batch.wording import called, figure, words
from subak.cli import window
from subak.cli.cards import line, strokes, terminal
from subak.cli.columns import aligned
from subak.cli.connection import Connection, connected
from subak.cli.live import picture
from subak.cli.options import live_config_option, output_option
from subak.cli.say import complain, emit
from subak.cli.standing import standing
from subak.dialects import Part
from subak.dialects.interpreter import Interpreter

if TYPE_CHECKING:
    from rich.console import Console

BAR = 12
UNKNOWN = 2
PLAIN = ("cpu", "memory")
MAIN_PARTS = (Part.MEMORY, Part.CARDS)
NUMBERS = frozenset({"WEIGHT", "PRIORITY", "HELD", "DESERVED", "ASKED", "AT MOST"})
NOTHING = "-"


@click.command()
@click.argument("name", required=False, metavar="[QUEUE]")
@live_config_option
@output_option
@connected
async def queues(connection: Connection, name: str | None, output: str, device_config: Interpreter | None) -> int:
    """Show how much of what it deserves each queue holds; or of one QUEUE also its jobs, in their order.

    A queue deserves a part of the cluster by its weight, but no more than its pods ask for; what others leave is shared
    among those that want more.  A bar is full when the queue holds all that it deserves of a resource; one that has its
    share of everything gets nothing more for now.  Cards of all dialects are one account.  `-o wide` shows every
    resource, and the most that a queue may have.

    \b
    Examples:
      subak queues                 all queues
      subak queues research        one queue, and which of its jobs comes next
      subak queues -o json         for scripts: thousandths of a cpu, and bytes

    Exit code 2 if a queue that is asked for does not exist.
    """
    found, jobs = await _look(connection, name, device_config)
    chosen = [view for view in found if name in (None, view.name)]
    if not chosen:
        complain([f"queue {name} is not there; there are: {', '.join(view.name for view in found)}"])
        return UNKNOWN
    if output in ("json", "yaml"):
        more = {} if name is None else {"jobs": msgspec.to_builtins(jobs)}
        emit({"queues": [msgspec.to_builtins(view) | more for view in chosen]}, output)
        return 0
    _show_queues(terminal(), chosen, wide=output == "wide")
    if name is not None:
        _show_jobs(jobs)
    missing = (view for view in chosen if view.state == MISSING)
    complain((), [f"queue {view.name} does not exist: its pods wait until it is created" for view in missing])
    return 0


async def _look(
    connection: Connection, name: str | None, device_config: Interpreter | None
) -> tuple[list[QueueView], list[JobView]]:
    """How queues stand, and the jobs of the one that is asked for: from the controller, or from all objects."""
    found = await window.of_queues(connection.client)
    jobs = await window.of_jobs(connection.client, name) if found and name else []
    if found is not None and jobs is not None:
        return found, jobs
    now = await picture(connection.client, device_config)
    session, warnings = await standing(connection.client, now)
    complain((), warnings)
    return overview(session), jobs_of(session, name) if name else []


def _show_queues(console: Console, views: Sequence[QueueView], wide: bool) -> None:
    more, limit = (["PRIORITY"], ["AT MOST"]) if wide else ([], [])
    headings = ["QUEUE", "STATE", "WEIGHT", *more, "GROUPS", "PODS", "", "", "HELD", "DESERVED", "ASKED", *limit, ""]
    rows, styles = [headings], ["dim"]
    for view in views:
        first = _first_cells(view, wide)
        for cells, style in _lines(console, view, wide):
            rows.append([*first, *cells])
            styles.append(style)
            first = [""] * len(first)
    numbers = [at for at, heading in enumerate(headings) if heading in NUMBERS]
    for text, style in zip(aligned(_to_the_right(rows, numbers), gap=2), styles, strict=True):
        line(console, (text, style))


def _to_the_right(rows: list[list[str]], columns: Iterable[int]) -> list[list[str]]:
    for column in columns:
        width = max(len(row[column]) for row in rows)
        for row in rows:
            row[column] = row[column].rjust(width)
    return rows


def _first_cells(view: QueueView, wide: bool) -> list[str]:
    groups, running = sum(view.groups.values()), view.groups.get("Running", 0)
    waiting = sum(view.groups.get(phase, 0) for phase in ("Pending", "Inqueue", "Unknown"))
    cells = [view.name, view.state, str(view.weight), *([str(view.priority)] if wide else [])]
    return [*cells, _lives(running, waiting) if groups else NOTHING, _lives(view.pods_running, view.pods_waiting)]


def _lines(console: Console, view: QueueView, wide: bool) -> Iterable[tuple[list[str], str]]:
    """For each resource: its name, a bar, what is held, deserved, asked, perhaps allowed, and what is to be said."""
    names = _resources(view, wide)
    if not names:
        yield [""] * (7 if wide else 6), ""
    for name in names:
        held, asked = view.held.get(name, 0), view.asked.get(name, 0)
        most = (view.deserved or {}).get(name, 0)
        bar, deserved, note, style = "", NOTHING, "", ""
        if view.deserved is not None:
            bar, deserved = _bar(console, held, most), figure(name, most)
            above = not fits(held, most)
            note = "above its share" if above else "has its share" if view.overused and view.pods_waiting else ""
            style = "red" if above else "yellow" if fits(most, held) and asked > held else "green"
        cells = [called(name), bar, figure(name, held), deserved, figure(name, asked)]
        limit = [figure(name, view.capability[name]) if name in view.capability else NOTHING] if wide else []
        yield [*cells, *limit, note], style


def _resources(view: QueueView, wide: bool) -> list[str]:
    """The resources to show: the cards that the queue asks for, else cpu and memory; with `wide` all of them."""
    names = {*view.asked, *view.guarantee, *(view.capability if wide else ())}
    if wide:
        return sorted(names, key=_place)
    cards = [name for name in names if (found := card_part(name)) is not None and found[1] in MAIN_PARTS]
    return sorted(cards or [name for name in names if name in PLAIN], key=_place)


def _place(name: str) -> tuple[bool, str]:
    """Cards come first."""
    return card_part(name) is None, name


def _bar(console: Console, held: float, most: float) -> str:
    solid, _, free = strokes(console)
    full = BAR if held >= most else max(round(held / most * BAR), 1 if held else 0)
    return (solid * (full if held else 0)).ljust(BAR, free)


def _show_jobs(jobs: Sequence[JobView]) -> None:
    rows = [["", "JOB", "PHASE", "PRIORITY", "PODS", "AT LEAST", "HOLDS", "WAITS FOR"]]
    place = 0
    for job in jobs:
        waits = bool(job.waiting)
        place += waits
        phase = "half bound" if job.half_bound else job.phase if job.words else ("Pending" if waits else "Running")
        rest = {name: amount - job.held.get(name, 0) for name, amount in job.asked.items()}
        cells = [str(place) if waits else "", job.name, phase, str(job.priority)]
        pods = [_lives(job.ready, job.waiting), f"{job.min_member:,}"]
        rows.append([*cells, *pods, _amounts(job.held), _amounts(rest)])
    click.echo()
    for text in aligned(_to_the_right(rows, [0, 3, 5]), gap=2):
        click.echo(text)


def _amounts(amounts: Mapping[str, float]) -> str:
    """What matters of amounts: cards, else cpu and memory."""
    names = [name for name, amount in amounts.items() if amount > 0]
    cards = [name for name in names if (found := card_part(name)) is not None and found[1] in MAIN_PARTS]
    main = sorted(cards or [name for name in names if name in PLAIN])
    return ", ".join(words(name, amounts[name]) for name in main) or NOTHING


def _lives(running: int, waiting: int) -> str:
    if not running and not waiting:
        return NOTHING
    return ", ".join(f"{count:,} {verb}" for count, verb in ((running, "run"), (waiting, "wait")) if count)
