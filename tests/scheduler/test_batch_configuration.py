"""The scheduler configuration in force is that of its ConfigMap or file, as it is now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from subak.batch.configuration import DEFAULT
from subak.scheduler import batch_configuration
from subak.scheduler.batch_configuration import KEY, NAME, NAMESPACE, USUAL, BatchConfiguration, Source
from subak.scheduler.messages import Configured
from tests.scheduler.live import MEMORY, living
from tests.support import virtual
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.server.server import Server
from tinykube.server.store import Store

PLACE = f"configmap {NAMESPACE}/{NAME}: {KEY}"
FIRST = "actions: allocate"
SECOND = "actions: allocate, backfill"
TYPO = "actions: alocate"


class Told:
    """What a configuration's keeper tells, and what it logs."""

    def __init__(self, source: Source, logged: pytest.LogCaptureFixture) -> None:
        self.client = Client(Server(Store()))
        self.all: list[Configured] = []
        self.keeper = BatchConfiguration(self.client, source, self.all.append)
        self._logged = logged

    @property
    def actions(self) -> tuple[str, ...]:
        return self.all[-1].configuration.actions if self.all else ()

    @property
    def warnings(self) -> list[str]:
        return [each.getMessage() for each in self._logged.records if each.levelno == logging.WARNING]

    async def create(self, text: str, key: str = KEY) -> None:
        """Create the namespace and the ConfigMap."""
        await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self.client.create(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": {key: text}}, NAMESPACE)

    async def write(self, text: str) -> None:
        """Change what the ConfigMap says."""
        await self.client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"data": {KEY: text}})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def keeping(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    caplog.set_level(logging.INFO, batch_configuration.__name__)
    monkeypatch.setattr(batch_configuration, "PAUSE", 0.01)
    return lambda source=USUAL: Told(source, caplog)


@asynccontextmanager
async def running(told: Told) -> AsyncIterator[None]:
    task = asyncio.create_task(told.keeper.run())
    async with asyncio.timeout(30):
        await told.keeper.known.wait()
    yield
    task.cancel()
    await asyncio.wait({task})


Keeping = Callable[..., Told]


async def test_without_a_configmap_the_default_is_in_force(keeping: Keeping) -> None:
    told = keeping()
    async with running(told):
        assert told.all == [Configured(DEFAULT, 300.0)]
        assert told.warnings == []
        assert told.keeper.trouble == ""


async def test_what_is_written_is_in_force_at_the_start_with_the_timeout_of_groups(keeping: Keeping) -> None:
    told = keeping(Source(group_timeout=7.0))
    await told.create(FIRST)
    async with running(told):
        assert [(each.configuration.actions, each.group_timeout) for each in told.all] == [(("allocate",), 7.0)]


async def test_an_edit_counts_at_once(keeping: Keeping, caplog: pytest.LogCaptureFixture) -> None:
    told = keeping()
    await told.create(FIRST)
    async with running(told):
        await told.write(SECOND)
        await told.until(lambda: told.actions == ("allocate", "backfill"))
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
    assert said[-1] == (
        f"the scheduler configuration in force is that of {PLACE}: actions allocate, backfill; plugins none"
    )


async def test_a_configmap_that_comes_later_counts(keeping: Keeping) -> None:
    told = keeping()
    async with running(told):
        await told.create(SECOND)
        await told.until(lambda: told.actions == ("allocate", "backfill"))


async def test_an_invalid_text_at_the_start_leaves_the_default(keeping: Keeping) -> None:
    told = keeping()
    await told.create(TYPO)
    async with running(told):
        assert told.all == [Configured(DEFAULT, 300.0)]
        (warning,) = told.warnings
        assert warning.startswith(f"{PLACE}: actions: 'alocate' in 'alocate' is no action; ")
        assert warning.endswith("the default scheduler configuration is in force")
        assert told.keeper.trouble == warning


async def test_an_invalid_edit_leaves_the_one_before_and_is_told_once(keeping: Keeping) -> None:
    told = keeping()
    await told.create(SECOND)
    async with running(told):
        await told.write(TYPO)
        await told.until(lambda: bool(told.keeper.trouble))
        for number in range(3):  # the same text again is no news
            await told.client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"metadata": {"labels": {"n": str(number)}}})
        await told.write(FIRST)
        await told.until(lambda: told.actions == ("allocate",))
        assert told.keeper.trouble == ""
    assert len(told.all) == 2
    (warning,) = told.warnings
    assert warning.startswith(f"{PLACE}: actions: 'alocate'")
    assert warning.endswith("the scheduler configuration before stays in force")


async def test_warnings_about_a_text_come_once(keeping: Keeping) -> None:
    told = keeping()
    await told.create(f"{FIRST}\ntiers: [{{plugins: [{{name: tdm}}]}}]")
    async with running(told):
        await told.client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"metadata": {"labels": {"n": "1"}}})
        await told.write(SECOND)
        await told.until(lambda: told.actions == ("allocate", "backfill"))
    assert told.warnings == [f"{PLACE}: plugin tdm: Volcano has it, Subak does not; it is skipped"]


async def test_a_configmap_that_goes_leaves_the_default(keeping: Keeping) -> None:
    told = keeping()
    await told.create(SECOND)
    async with running(told):
        await told.client.delete(CONFIG_MAPS, NAME, NAMESPACE)
        await told.until(lambda: told.all[-1].configuration == DEFAULT)
    assert told.warnings == [
        f"configmap {NAMESPACE}/{NAME} is removed; the default scheduler configuration is in force"
    ]


async def test_a_configmap_without_the_key_leaves_the_default(keeping: Keeping) -> None:
    told = keeping()
    await told.create(SECOND, key="scheduler.conf")
    async with running(told):
        assert told.all[-1].configuration == DEFAULT
    assert told.warnings == [
        f"configmap {NAMESPACE}/{NAME} has no key {KEY}; the default scheduler configuration is in force"
    ]


async def test_another_configmap_does_not_count(keeping: Keeping) -> None:
    told = keeping(Source("elsewhere", "conf"))
    await told.create(SECOND)
    async with running(told):
        assert told.all[-1].configuration == DEFAULT


async def test_a_file_is_read_again_when_a_mounted_configmap_is_swapped(keeping: Keeping, tmp_path: Path) -> None:
    for name, text in (("..1", FIRST), ("..2", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / KEY).write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / KEY).symlink_to(f"..data/{KEY}")
    told = keeping(Source(file=tmp_path / KEY))
    async with running(told):
        assert told.actions == ("allocate",)
        (tmp_path / "..tmp").symlink_to("..2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        await told.until(lambda: told.actions == ("allocate", "backfill"))
    assert len(told.all) == 2


async def test_a_file_that_is_away_leaves_what_was_in_force(keeping: Keeping, tmp_path: Path) -> None:
    path = tmp_path / "conf"
    told = keeping(Source(file=path))
    async with running(told):
        why = f"file {path}: it cannot be read: No such file or directory"
        assert told.keeper.trouble == f"{why}; the default scheduler configuration is in force"
        path.write_text(SECOND)
        await told.until(lambda: told.actions == ("allocate", "backfill"))
        path.unlink()
        await told.until(lambda: bool(told.keeper.trouble))
        assert told.keeper.trouble == f"{why}; the scheduler configuration before stays in force"
        path.write_text(SECOND)
        await told.until(lambda: not told.keeper.trouble)
        assert told.actions == ("allocate", "backfill")
    assert len(told.warnings) == 2


@pytest.mark.parametrize("data", [b"\xff\xfe", b"#" * (batch_configuration.MOST_BYTES + 1), b"a: b: c"])
async def test_a_file_that_is_no_configuration_is_refused_once(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    path = tmp_path / "conf"
    path.write_bytes(data)
    reads: list[Path] = []
    read = batch_configuration._read

    def counted(path: Path) -> str:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(batch_configuration, "_read", counted)
    told = keeping(Source(file=path))
    async with running(told):
        await told.until(lambda: len(reads) > 5)
    assert told.all == [Configured(DEFAULT, 300.0)]
    (warning,) = told.warnings
    assert warning.startswith(f"file {path}: it cannot be read")


def test_a_pod_is_refused_while_what_it_asks_for_is_switched_off() -> None:
    plugin = "{name: predicates, arguments: {predicate.GPUSharingEnable: false}}"
    off = f"actions: enqueue, allocate\ntiers: [{{plugins: [{plugin}]}}]"

    async def story() -> None:
        async with living() as live:
            await live.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            body = {"metadata": {"name": NAME}, "data": {KEY: off}}
            await live.client.create(CONFIG_MAPS, body, NAMESPACE)
            await live.until(lambda: bool(live.service.core.batch.configuration.off))
            await live.create("refused", {MEMORY: "500"}, schedulerName="volcano")
            await live.create("other", {MEMORY: "500"}, schedulerName="subak")
            await live.until(lambda: live.condition("refused").get("status") == "False" and "other" in live.placed())
            assert "predicate.GPUSharingEnable is false" in live.condition("refused")["message"]
            await live.client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"data": {KEY: off.replace("false", "true")}})
            await live.until(lambda: live.placed() == {"other": "n1", "refused": "n1"})

    virtual.run(story())


def test_the_configuration_is_known_before_anything_is_decided() -> None:
    async def story() -> None:
        async with living() as live:
            await live.kill()
            await live.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            body = {"metadata": {"name": NAME}, "data": {KEY: SECOND}}
            await live.client.create(CONFIG_MAPS, body, NAMESPACE)
            await live.start()
            await live.service.ready.wait()
            assert live.service.core.batch.configuration.actions == ("allocate", "backfill")

    virtual.run(story())
