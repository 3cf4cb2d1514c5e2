"""The life of a plugin beside a runtime that follows NRI's protocol to the letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.nri import wire
from subak.node.nri.messages import NO_ADJUSTMENT, Adjustment, Container, Mount, Runtime, Sandbox
from subak.node.nri.plugin import Plugin, Refused
from subak.node.nri.ttrpc import REQUEST, Failure, Message
from tests.support import nri
from tests.support.fuzz import examples
from tests.support.nri import NEW, OLD, FakeRuntime, Link

VALIDATE = 1 << 13


class Notes:
    """A handler that notes what it is asked, and waits where a test says so."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.states: list[tuple[list[str], list[str]]] = []
        self.stopped: list[str] = []
        self.held = asyncio.Event()
        self.held.set()
        self.answer = NO_ADJUSTMENT

    def configure(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def synchronize(self, sandboxes: Sequence[Sandbox], containers: Sequence[Container]) -> None:
        self.states.append(([each.uid for each in sandboxes], [each.id for each in containers]))

    async def create(self, sandbox: Sandbox, container: Container) -> Adjustment:
        if container.name == "slow":
            await self.held.wait()
        if container.name == "bad":
            raise Refused("no room: " + "x" * 5_000)
        if container.name == "bug":
            raise ZeroDivisionError
        return Adjustment(env=(("POD", sandbox.key), ("CONTAINER", container.name)), mounts=self.answer.mounts)

    def validate(self, sandbox: Sandbox, container: Container, adjustment: Adjustment) -> str:
        return "" if dict(adjustment.env).get("POD") == sandbox.key else "POD is not ours"

    def stop(self, sandbox: Sandbox, container: Container) -> None:
        self.stopped.append(container.id)


@asynccontextmanager
async def running(fake: FakeRuntime, notes: Notes) -> AsyncIterator[Plugin]:
    plugin = Plugin(notes, fake.socket, pauses=(0.001,))
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def talking(directory: Path, version: tuple[str, str, str] = NEW) -> AsyncIterator[tuple[Link, Notes, Plugin]]:
    notes = Notes()
    async with nri.runtime(directory) as fake, running(fake, notes) as plugin:
        link = await fake.link()
        await link.begin(version)
        yield link, notes, plugin


async def test_a_plugin_registers_and_answers(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, notes, plugin):
        message = link.registered.result()
        assert (message.stream, message.kind) == (1, REQUEST)
        assert message.data.endswith(wire.text(1, "subak") + wire.text(2, "10"))
        assert plugin.connected
        assert str(plugin.runtime) == "containerd v2.3.7, NRI v0.12.0"
        adjustment = await link.create(nri.pod("u", "p"), nri.container("c", "u"))
        assert dict(adjustment.env) == {"POD": "default/p", "CONTAINER": "c"}
        assert notes.states == [([], [])]


async def test_the_validator_sees_what_is_about_to_be_done(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, _, _):
        assert link.events & VALIDATE
        sandbox, content = nri.pod("u", "p"), nri.container("c", "u")
        adjustment = await link.create(sandbox, content)
        assert await link.validate(sandbox, content, adjustment) == ""
        assert await link.validate(sandbox, content, Adjustment(env=(("POD", "b/other"),))) == "POD is not ours"


async def test_containerd_1_7_is_asked_for_nothing_that_it_does_not_know(tmp_path: Path) -> None:
    """It throws a plugin out that subscribes to events that it has never heard of."""
    async with talking(tmp_path, OLD) as (link, notes, plugin):
        assert link.events == 1 << 3 | 1 << 9 | 1 << 10
        assert not link.events & ~0x7FF
        assert plugin.connected
        removed = wire.number(1, 11) + wire.data(2, nri.pod("u")) + wire.data(3, nri.container("c", "u"))
        assert (await link.call("StateChange", removed)).failure is None
        started = wire.number(1, 6) + wire.data(2, nri.pod("u")) + wire.data(3, nri.container("d", "u"))
        assert (await link.call("StateChange", started)).failure is None
        assert notes.stopped == ["u-c"]


async def test_newer_runtimes_have_a_method_for_each_event(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, notes, _):
        for method in ("StopContainer", "RemoveContainer"):
            assert (await link.call(method, nri.about(nri.pod("u"), nri.container("c", "u")))).failure is None
        assert notes.stopped == ["u-c", "u-c"]
        assert (await link.call("Shutdown")).failure is None


async def test_methods_that_nobody_knows_are_answered_too(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, _, _):
        for response in (await link.call("Dance"), await link.call("Configure", service="other.Service")):
            assert response.failure is not None
            assert response.failure.code == 12


async def test_a_refusal_is_a_failure_which_the_kubelet_shows(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, _, _):
        with pytest.raises(Failure, match="no room: xxx") as caught:
            await link.create(nri.pod("u"), nri.container("bad", "u"))
        assert caught.value.code not in (0, 1, 4)  # these would look like a plugin that has died
        assert len(caught.value.message) == 2_000


async def test_a_mistake_of_ours_lets_no_container_start(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, _, _):
        with pytest.raises(Failure, match="subak failed"):
            await link.create(nri.pod("u"), nri.container("bug", "u"))
        response = await link.call("CreateContainer", b"\x0a\xff")
        assert response.failure is not None
        assert "subak cannot read the request" in response.failure.message
        assert (await link.create(nri.pod("u"), nri.container("c", "u"))).env


async def test_requests_in_flight_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, notes, _):
        notes.held.clear()
        slow = asyncio.create_task(link.create(nri.pod("u"), nri.container("slow", "u")))
        quick = await link.create(nri.pod("v"), nri.container("c", "v"))
        assert dict(quick.env)["POD"] == "default/v"
        assert not slow.done()
        notes.held.set()
        assert dict((await slow).env)["CONTAINER"] == "slow"


async def test_an_answer_comes_before_the_runtime_gives_up(tmp_path: Path) -> None:
    notes = Notes()
    notes.held.clear()
    async with nri.runtime(tmp_path) as fake, running(fake, notes):
        link = await fake.link()
        await link.begin(NEW, timeout_ms=40)
        with pytest.raises(Failure, match="could not answer in time"):
            await link.create(nri.pod("u"), nri.container("slow", "u"))


async def test_a_large_answer_is_cut_into_frames_that_the_runtime_can_read(tmp_path: Path) -> None:
    async with talking(tmp_path) as (link, notes, _):
        notes.answer = Adjustment(mounts=tuple(Mount(f"/d{i}", "bind", "/s" * 100, ("ro",)) for i in range(200)))
        adjustment = await link.create(nri.pod("u"), nri.container("c", "u"))
        assert adjustment.mounts == notes.answer.mounts


async def test_a_state_in_parts_is_put_together(tmp_path: Path) -> None:
    notes = Notes()
    async with nri.runtime(tmp_path) as fake, running(fake, notes) as plugin:
        parts = [
            wire.data(1, nri.pod("a")) + wire.data(2, nri.container("c", "a")),
            wire.data(1, nri.pod("b")),
            wire.data(2, nri.container("d", "b")),
        ]
        await (await fake.link()).begin(NEW, parts)
        assert notes.states == [(["a", "b"], ["a-c", "b-d"])]
        assert plugin.connected


async def test_after_the_runtime_restarts_the_plugin_comes_back(tmp_path: Path) -> None:
    told: list[bool] = []
    notes = Notes()
    async with nri.runtime(tmp_path) as fake:
        plugin = Plugin(notes, fake.socket, told.append, pauses=(0.001,))
        task = asyncio.create_task(plugin.run())
        for number in range(3):
            link = await fake.link(number)
            await link.begin(NEW, [wire.data(1, nri.pod(f"u{number}"))])
            assert plugin.connected
            await link.close()
        await fake.link(3)
        assert told == [True, False] * 3
        assert notes.states == [([f"u{number}"], []) for number in range(3)]
        task.cancel()
        await asyncio.wait({task})


async def test_a_plugin_waits_for_a_runtime_that_is_not_there_yet(tmp_path: Path) -> None:
    plugin = Plugin(Notes(), tmp_path / "nri.sock", pauses=(0.001,))
    task = asyncio.create_task(plugin.run())
    await asyncio.sleep(0)
    async with nri.runtime(tmp_path) as fake:
        await (await fake.link()).begin(NEW)
        assert plugin.connected
        task.cancel()
        await asyncio.wait({task})
    assert not plugin.connected


async def test_there_is_one_connection_at_a_time(tmp_path: Path) -> None:
    notes = Notes()
    async with nri.runtime(tmp_path) as fake, running(fake, notes):
        first = await fake.link()
        await first.begin(NEW)
        first.garble(b"\x00\x00\x00\x01\xff\xff\xff\xff")
        await fake.link(1)
        await first.closed()


async def test_a_registration_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    async with nri.runtime(tmp_path) as fake, running(fake, Notes()) as plugin:
        first = await fake.link()
        await first.registered
        first.send(2, Message(1, 2, wire.data(1, wire.number(1, 2) + wire.text(2, "no such plugin"))))
        await (await fake.link(1)).begin(NEW)
        assert plugin.connected


@examples(quick=15, ci=100)
@given(st.integers(1, 60), st.lists(st.sampled_from(["c", "bad", "slow"]), max_size=6))
def test_however_frames_are_cut_every_request_gets_its_own_answer(cut: int, names: list[str]) -> None:
    async def story() -> None:
        notes = Notes()
        with TemporaryDirectory() as directory:
            async with nri.runtime(Path(directory), cut) as fake, running(fake, notes):
                link = await fake.link()
                await link.begin(NEW, [wire.data(1, nri.pod("a")), b""])
                calls = [link.create(nri.pod(f"u{i}"), nri.container(each, f"u{i}")) for i, each in enumerate(names)]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
                    if name == "bad":
                        assert isinstance(answer, Failure)
                    else:
                        assert isinstance(answer, Adjustment)
                        assert dict(answer.env) == {"POD": f"default/u{number}", "CONTAINER": name}

    asyncio.run(story())


@examples(quick=15, ci=150)
@given(st.binary(min_size=1, max_size=64), st.booleans())
def test_nonsense_neither_ends_nor_blocks_the_plugin(content: bytes, framed: bool) -> None:
    """A runtime that talks nonsense is left; the plugin comes back."""

    async def story() -> None:
        notes = Notes()
        with TemporaryDirectory() as directory:
            async with nri.runtime(Path(directory)) as fake, running(fake, notes) as plugin:
                first = await fake.link()
                await first.registered
                first.garble((b"\0\0\0\1" + len(content).to_bytes(4) if framed else b"") + content)
                await first.close()
                await (await fake.link(1)).begin(NEW)
                assert plugin.connected

    asyncio.run(story())
