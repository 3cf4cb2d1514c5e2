"""What the monitor sees of tenants, and what they read of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import isolation
from subak.model.device import Device
from subak.model.manifest import Container, Metadata, Pod, PodSpec
from subak.model.placement import Share
from subak.node.monitor import state
from subak.node.monitor.monitor import Moment, Monitor, look, take_back
from subak.node.monitor.words import Word, Work
from subak.node.tenant import Held, Tenant
from tests.support.fuzz import examples
from tests.support.regions import MIB, launched, region, work

SECOND = 1_000_000_000
TODAY = 1_800_000_000
THEN = Moment(1_000 * SECOND, TODAY + 0.5)
CARD = Device("GPU-00", 0, "nvidia", memory_bytes=8192 * MIB)
OTHER = Device("GPU-01", 1, "nvidia", memory_bytes=8192 * MIB)


def tenant(folder: Path, name: str, *cards: Device, priority: int = isolation.USUAL) -> Tenant:
    """A tenant that has its state, and no region yet."""
    pod = Pod(metadata=Metadata(name=name, uid=name), spec=PodSpec(containers=[Container(name="c")]))
    held = [Held(number, each, Share(each.id, each.index, MIB, 50)) for number, each in enumerate(cards or (CARD,))]
    (folder / name).write_bytes(state.EMPTY)
    return Tenant(pod, {0: "c"}, tuple(held), folder / f"{name}.cache", (folder / name,), priority=priority)


def works(who: Tenant, moment: Moment = THEN, *, card: int = 0) -> None:
    """The tenant's library says that it had work at this moment."""
    assert who.region is not None
    content = region(cards=2)
    work(content, moment.monotonic_ns, card=card)
    work(content, 1, card=1 - card)
    who.region.write_bytes(content)


def said(who: Tenant, moment: Moment = THEN) -> list[Word]:
    """What holds for the tenant's cards, as its library reads it."""
    found = state.read(who.states[0], moment.monotonic_ns)
    return [found[held.number] for held in who.cards] if found else []


def hami_words(who: Tenant) -> tuple[int, int]:
    assert who.region is not None
    found: tuple[int, int] = struct.unpack_from("<ii", who.region.read_bytes(), 2_008_900)
    return found


def later(seconds: float) -> Moment:
    return Moment(THEN.monotonic_ns + int(seconds * SECOND), THEN.seconds + seconds)


def test_a_tenant_waits_while_a_more_important_one_works_and_goes_on_afterwards(tmp_path: Path) -> None:
    high, low = tenant(tmp_path, "high", priority=isolation.HIGH), tenant(tmp_path, "low")
    works(high)
    works(low)
    look([high, low], THEN)
    assert (said(high), said(low)) == ([Word.LIFTED], [Word.BLOCKED])
    assert hami_words(low) == (1, -1)
    idle = later(3)
    look([high, low], idle)
    assert said(low, idle) == [Word.LIFTED]
    assert hami_words(low) == (0, 0)


def test_a_share_holds_again_as_soon_as_a_neighbour_works(tmp_path: Path) -> None:
    mine, neighbour = tenant(tmp_path, "mine"), tenant(tmp_path, "neighbour")
    works(mine)
    look([mine, neighbour], THEN)  # the neighbour has not used the card at all
    assert said(mine) == [Word.LIFTED]
    assert hami_words(mine)[0] == 0
    works(neighbour)
    look([mine, neighbour], THEN)
    assert said(mine) == said(neighbour) == [Word.NOTHING]
    assert hami_words(mine)[0] == 1


def test_each_card_has_its_own_word_and_hami_core_the_strictest(tmp_path: Path) -> None:
    wide, high = tenant(tmp_path, "wide", CARD, OTHER), tenant(tmp_path, "high", OTHER, priority=isolation.HIGH)
    works(wide)
    works(high, card=1)
    look([wide, high], THEN)
    assert said(wide) == [Word.LIFTED, Word.BLOCKED]
    assert hami_words(wide) == (1, -1)


def test_work_of_hami_core_counts_on_all_its_cards(tmp_path: Path) -> None:
    theirs = tenant(tmp_path, "theirs", CARD, OTHER)
    assert theirs.region is not None
    content = region(own=False, cards=2)
    launched(content, TODAY)
    theirs.region.write_bytes(content)
    assert look([theirs], THEN)[0].work == {"GPU-00": Work.SOME, "GPU-01": Work.SOME}
    assert look([theirs], later(3))[0].work == {"GPU-00": Work.NONE, "GPU-01": Work.NONE}


@pytest.mark.parametrize("ahead", [60, 10**9])
def test_work_in_the_future_is_a_scribble(tmp_path: Path, ahead: int) -> None:
    mine = tenant(tmp_path, "mine")
    works(mine, later(ahead))
    assert look([mine], THEN)[0].work == {"GPU-00": Work.NONE}


def test_a_tenant_that_cannot_be_seen_keeps_shares_in_force(tmp_path: Path) -> None:
    mine, scribbler = tenant(tmp_path, "mine"), tenant(tmp_path, "scribbler", priority=isolation.HIGH)
    works(mine)
    assert scribbler.region is not None
    scribbler.region.write_text("not a region")
    look([mine, scribbler], THEN)
    assert said(mine) == [Word.NOTHING]
    stranger = Tenant(scribbler.pod, {0: "c"}, scribbler.cards)
    look([mine, stranger], THEN)
    assert said(mine) == [Word.NOTHING]


def test_what_a_tenant_writes_into_its_region_does_not_lift_its_share(tmp_path: Path) -> None:
    mine, neighbour = tenant(tmp_path, "mine"), tenant(tmp_path, "neighbour")
    works(mine)
    works(neighbour)
    assert mine.region is not None
    content = bytearray(mine.region.read_bytes())
    struct.pack_into("<ii", content, 2_008_900, 0, 2)
    struct.pack_into("<i", content, 2_008_908, 0)  # a priority of its own choice
    mine.region.write_bytes(content)
    look([mine, neighbour], THEN)
    assert said(mine) == said(neighbour) == [Word.NOTHING]
    assert hami_words(mine)[0] == 1


def test_containers_that_count_together_are_told_the_same(tmp_path: Path) -> None:
    one, two = tenant(tmp_path, "one"), tenant(tmp_path, "two")
    both = Tenant(one.pod, {0: "a", 1: "b"}, one.cards, one.region, one.states + two.states)
    works(both)
    look([both], THEN)
    assert said(one) == said(two) == [Word.LIFTED]


def test_a_container_that_goes_meanwhile_disturbs_nobody(tmp_path: Path) -> None:
    gone, here = tenant(tmp_path, "gone"), tenant(tmp_path, "here")
    gone.states[0].unlink()
    look([gone, here], THEN)
    assert said(here) == [Word.LIFTED]
    assert not gone.states[0].exists()


def test_a_monitor_that_ends_leaves_nobody_blocked_and_nobody_lifted(tmp_path: Path) -> None:
    high, low = tenant(tmp_path, "high", priority=isolation.HIGH), tenant(tmp_path, "low")
    works(high)
    works(low)
    look([high, low], THEN)
    take_back([high, low])
    assert said(high) == said(low) == []
    assert hami_words(high) == (1, 0)
    assert hami_words(low) == (1, 0)


async def test_it_speaks_while_it_runs_and_takes_its_words_back(tmp_path: Path) -> None:
    mine = tenant(tmp_path, "mine")
    monitor = Monitor(lambda: [mine])
    running = asyncio.create_task(monitor.run())
    async with asyncio.timeout(30):
        while not monitor.rounds:
            await asyncio.sleep(0.01)
    assert said(mine, Moment.now()) == [Word.LIFTED]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert said(mine, Moment.now()) == []


def scribbles(who: Tenant, moment: Moment) -> None:
    assert who.region is not None
    who.region.write_bytes(b"scribble")


def loses(who: Tenant, moment: Moment) -> None:
    assert who.region is not None
    who.region.unlink(missing_ok=True)


@examples(quick=25, ci=200)
@given(data=st.data())
def test_no_history_leaves_two_that_work_unlimited(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever tenants do, write and lose, and whenever the monitor is killed: after each round everything fits."""
    folder, now = tmp_path_factory.mktemp("node"), THEN
    tenants = [tenant(folder, f"t{n}", priority=data.draw(st.integers(0, 1))) for n in range(3)]
    acts: list[Callable[[Tenant, Moment], None]] = [works, scribbles, loses]
    for _ in range(data.draw(st.integers(1, 8))):
        now = Moment(now.monotonic_ns + SECOND, now.seconds + 1)
        data.draw(st.sampled_from(acts))(data.draw(st.sampled_from(tenants)), now)
        if data.draw(st.booleans()):
            seen = look(tenants, now)
            assert all(said(each.tenant, now) == [each.words["GPU-00"]] for each in seen)
            busy = [said(each.tenant, now) for each in seen if each.work["GPU-00"] is not Work.NONE]
            going = [words for words in busy if words != [Word.BLOCKED]]
            assert len(going) < 2 or all(words == [Word.NOTHING] for words in going)
    killed = Moment(now.monotonic_ns + 3 * SECOND, now.seconds + 3)
    assert all(said(each, killed) == [] for each in tenants)
