"""The benchmarks do what they say: pods leave, cards are not overcommitted, and nothing that costs time is left out."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from bench import __main__, churn, decisions, ledger, load, printed, starts
from bench.driver import CYCLE, DEPARTURE, WITHDRAWAL, Driver, Garbage, Reported
from bench.happenings import ARRIVAL, MIX, Happenings
from bench.samples import summary
from bench.world import World
from subak.dialects.interpreter import Interpreter
from subak.local.runtime import capability
from subak.scheduler.core import Core
from subak.scheduler.messages import Event, Instruction, NodeSeen, PodSeen, Report
from subak.snapshot.cluster import Snapshot

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


@pytest.fixture
def world() -> World:
    """A full cluster of 20 nodes."""
    return World(20, 60)


@pytest.fixture
def driver(world: World) -> Driver:
    """A core that was told all of it, and has seen a hundred pods come and go."""
    garbage = Garbage()
    made = Driver(garbage)
    made.start(NodeSeen(node) for node in world.nodes)
    made.start(PodSeen(pod) for pod in world.running)
    happenings = Happenings(made, world, 1)
    for _ in islice(happenings, 200):
        made.wait(made.now + 0.001)
    happenings.undo()
    made.settle(1_000)
    garbage.stop()
    return made


def test_pods_really_leave_and_others_take_their_place(world: World, driver: Driver) -> None:
    before, after = {pod.key for pod in world.running}, driver.core.snapshot.bookings.keys()
    left = before - after
    assert 50 < len(left) <= driver.counts["left"]
    assert not left & driver.pods.keys()
    assert after - before, "nobody came"


def test_arrivals_and_departures_are_in_balance(world: World, driver: Driver) -> None:
    kinds = Counter(islice(Happenings(driver, world, 2), 300))
    assert set(kinds) == set(MIX)
    assert abs(kinds[ARRIVAL] - kinds[DEPARTURE] - kinds[WITHDRAWAL]) <= 3


def test_no_card_is_overcommitted_by_the_bookings_themselves(driver: Driver) -> None:
    memory: Counter[str] = Counter()
    for booking in driver.core.snapshot.bookings.values():
        for id, charge in booking.charges.items():
            memory[f"{booking.placement.node}/{id}"] += charge.memory_bytes
    sizes = {f"{node.name}/{each.id}": each.memory_bytes for node in driver.core.snapshot for each in node.devices}
    assert memory.total()
    assert all(taken <= sizes[card] for card, taken in memory.items())
    assert ledger.read(driver, 1).sound


def test_the_ledger_tells_of_whoever_is_lost_or_still_there(driver: Driver) -> None:
    snapshot = driver.core.snapshot
    key, booking = next(iter(snapshot.bookings.items()))
    snapshot.forget(key)
    assert ledger.read(driver, 1).lost == 1
    snapshot.restore(key, booking.placement, booking.resources)
    snapshot.restore("default/ghost", booking.placement, booking.resources)
    found = ledger.read(driver, 1)
    assert (found.lost, found.leaked, found.sound) == (0, 1, False)


def test_the_ledger_tells_of_cards_that_hold_too_much(driver: Driver) -> None:
    snapshot = driver.core.snapshot
    for key, booking in list(snapshot.bookings.items())[:3]:
        for copy in range(20):
            snapshot.restore(f"{key}-{copy}", booking.placement, booking.resources)
    assert ledger.read(driver, 1).overcommitted >= 1


def test_the_ledger_tells_of_whoever_was_not_told_why(driver: Driver) -> None:
    waiting = driver.waiting()
    assert waiting
    del driver.reported[waiting[0]]
    found = ledger.read(driver, 1)
    assert (found.silent, found.sound) == (1, False)


def test_the_ledger_tells_how_old_a_wrong_reason_is(driver: Driver) -> None:
    before = ledger.read(driver, 1)
    assert before.same_reasons <= before.asked
    driver.reported = {key: Reported("the moon is full", frozenset(), driver.now - 77.0) for key in driver.reported}
    found = ledger.read(driver, 1)
    assert (found.word_for_word, found.same_reasons) == (0, 0)
    assert found.oldest == pytest.approx(77.0)


@dataclass
class Late:
    """A core that explains two seconds later."""

    due: float | None = None
    events: list[Event] = field(default_factory=list)

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def cycle(self, now: float, most: int) -> list[Instruction]:
        if self.due is None and len(self.events) == 1:
            self.due = now + 2.0
        elif self.due is not None and self.due <= now:
            self.due = None
            return [Report("default/a", "uid-a", "no room", {})]
        return []

    def wakes_at(self) -> float | None:
        return self.due


def test_what_a_core_does_later_is_paid_for_and_heard() -> None:
    garbage = Garbage()
    driver, late = Driver(garbage), Late()
    driver.core = cast(Core, late)
    driver.arrive(load.pod("a", load.too_large(1)[0]))
    assert not driver.reported
    assert driver.settle(60) < 60
    assert driver.reported["default/a"].message == "no room"
    assert driver.longest_silence >= 2.0
    assert len(driver.costs[CYCLE]) == 1
    assert len(late.events) == 2, "the watch tells of what was written"
    garbage.stop()


def test_garbage_that_is_collected_between_events_is_charged_to_the_next() -> None:
    garbage = Garbage()
    driver = Driver(garbage)
    garbage.total += 100.0
    driver.deliver("first", NodeSeen(load.node(1)))
    driver.deliver("second", NodeSeen(load.node(2)))
    assert driver.costs["first"][0] > 100.0 > driver.costs["second"][0]
    garbage.stop()


def test_shapes_differ_in_all_that_can_be_asked_for() -> None:
    interpreter, shapes = Interpreter(), load.shapes(300, 1)
    assert len({load.request(shape, interpreter) for shape in shapes}) == 300
    for name in ("cpu", "memory", "nvidia.com/gpumem", "nvidia.com/gpucores"):
        assert len({shape.limits.get(name) for shape in shapes}) > 20, name


def test_ranks_are_of_the_costs_and_the_worst_is_the_worst() -> None:
    found = summary(array("d", range(1, 1_001)))
    assert (found.count, found.p50, found.p99, found.p999, found.worst) == (1_000, 501, 991, 1_000, 1_000)


def test_churn_shows_two_checkouts_in_one_table(tmp_path: Path) -> None:
    small = ["--nodes", "10", "--shapes", "30", "--seconds", "0.4", "--growth", "5,10", "--few", "5", "--many", "30"]
    run = CliRunner().invoke(churn.main, [*small, "--against", str(ROOT), "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    rows = cells(run.stdout)
    assert rows["event"][0] == "old: seen"
    assert rows["event"][5] == "new: seen"
    for kind in ("departure", "node change", "device change", "node gone or back", "heartbeat"):
        assert int(rows[kind][0].replace(",", "")) >= 2, kind
        assert int(rows[kind][5].replace(",", "")) >= 2, kind
    assert int(rows["pods that left"][0]) == int(rows["departure"][0].replace(",", ""))
    for name in ("old", "new"):
        assert f"{name}: " in run.stdout
    assert run.stdout.count("0 are lost, 0 have left and still hold some, 0 cards are overcommitted") == 2
    assert (tmp_path / "churn.png").stat().st_size


def test_decisions_are_made_while_pods_leave_at_every_size(tmp_path: Path) -> None:
    small = ["--sizes", "10,20", "--rounds", "2", "--decisions", "60", "--pods-per-node", "3"]
    run = CliRunner().invoke(decisions.main, [*small, "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    rows = cells(run.stdout)
    for nodes in (10, 20):
        pods, left, refused = (int(rows[str(nodes)][at]) for at in (0, 1, 8))
        assert (pods, left + refused) == (nodes * 3, 120 + 2 * decisions.REFUSALS)


def test_decisions_notice_a_pod_that_has_not_left() -> None:
    interpreter = Interpreter()
    requests = [load.request(shape, interpreter) for shape in load.shapes(20, 1, decisions.SMALLEST)]
    cluster = decisions.Cluster(10, Snapshot(load.nodes(10, interpreter)), cycle(requests))
    cluster.fill(20)
    cluster.check(20)
    cluster.running.popleft()
    with pytest.raises(AssertionError, match="20 pods hold cards, 19 run"):
        cluster.check(20)


def test_an_unknown_benchmark_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["speed"]) == 2
    assert __main__.main(["churn", "cluster", "--nodes", "1"]) == 2
    assert "there are: decisions, neighbours, gangs, starts, cluster, churn" in capsys.readouterr().err
    assert __main__.main(["churn", "--against", "/nowhere"]) == 2
    assert "'/nowhere' does not exist" in capsys.readouterr().err


def test_every_user_s_containers_are_measured() -> None:
    if obstacle := asyncio.run(capability.obstacle()):
        pytest.skip(obstacle)
    for user in starts.users():
        found = starts.turn(user, starts.ROOT, 2)
        assert len(found.waits) == 2
        assert found.cpu > 0


def test_figures_go_where_the_page_wants_them() -> None:
    page = "# Speed\n<!-- churn -->\nold\n<!-- /churn -->\nThe end.\n"
    assert printed.pasted(page, "churn", "new\n") == "# Speed\n<!-- churn -->\nnew\n<!-- /churn -->\nThe end.\n"
    with pytest.raises(ValueError, match="<!-- cluster -->"):
        printed.pasted(page, "cluster", "new\n")


def test_the_page_has_a_place_for_every_benchmark() -> None:
    page = printed.PAGE.read_text()
    for name in __main__.BENCHMARKS:
        assert printed.pasted(page, name, "((figures))\n").count("((figures))\n") == 1, name


def cells(text: str) -> dict[str, list[str]]:
    """The rows of all tables by their first cell; of several the first."""
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|"))
    found: dict[str, list[str]] = {}
    for name, *values in rows:
        found.setdefault(name, values)
    return found
