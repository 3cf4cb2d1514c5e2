"""`subak up --state` is killed again and again, at any moment, while pods come and go on cards that are too few.

Nothing that was confirmed is lost, no pod is placed twice or runs twice, no card is overcommitted at any moment, and in
the end all cards are free.  Cards are counted from the annotations of pods and nodes, by `held_cards`, which uses
nothing of Subak.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.support.held_cards import overcommitted
from tests.support.live import ROOT, commands, free_port, live
from tests.support.storm import Json, client_of, pod, remove, running, until, until_phase
from tinykube.client import Client
from tinykube.resource import NODES, PODS
from tinykube.status import ApiError

KILLS, TENANTS, CARDS = 8, 10, 4
HARDWARE = "nodes: [{profile: shared, name: lab, count: 2, taints: [], cards: {count: 2}}]"
WHOLE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}


@dataclass
class Witness:
    """What was confirmed and seen, over all restarts."""

    made: dict[str, str] = field(default_factory=dict)
    """The UID of each pod whose creation was confirmed."""
    deleted: set[str] = field(default_factory=set)
    placed: dict[str, str] = field(default_factory=dict)
    """The node of each UID that was seen on one."""
    looks: int = 0
    over: bool = False
    chance: random.Random = field(default_factory=lambda: random.Random(16))

    def see(self, nodes: list[Json], pods: list[Json]) -> None:
        """Look at all pods at one moment: each is where it was, and the cards carry them."""
        assert overcommitted(nodes, [each for each in pods if each["spec"].get("nodeName")]) == []
        for each in pods:
            name, uid, node = each["metadata"]["name"], each["metadata"]["uid"], each["spec"].get("nodeName")
            assert self.made.get(name, uid) == uid, f"there are two pods {name}"
            assert not node or self.placed.setdefault(uid, node) == node, f"{name} was on {self.placed[uid]}"
        self.looks += 1

    @property
    def confirmed(self) -> int:
        return len(self.made) + len(self.deleted)


def mark(name: str) -> str:
    """Seconds that only this pod of this test sleeps."""
    _, tenant, turn = name.split("-")
    return f"86399.{os.getpid()}{int(tenant):03}{int(turn):05}"


async def tenant(client: Client, witness: Witness, number: int) -> None:
    """Bring pods and take them away, until the storm is over; the last one stays.  No answer means: ask again."""
    chance = random.Random(number)
    for turn in count():
        name = f"p-{number}-{turn}"
        share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": chance.randrange(4_000, 20_000, 500)}
        witness.made[name] = await made(client, pod(name, "sleep", mark(name), limits=share, restartPolicy="Always"))
        await asyncio.sleep(chance.random())
        if witness.over:
            return
        await deleted(client, name, witness.made[name])
        witness.deleted.add(name)


async def made(client: Client, wanted: Json) -> str:
    """Create a pod; gives its UID."""
    while True:
        with suppress(OSError, TimeoutError):
            try:
                return str((await client.create(PODS, wanted, "default"))["metadata"]["uid"])
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                found = await client.get(PODS, wanted["metadata"]["name"], "default")  # made, but the answer was lost
                return str(found["metadata"]["uid"])
        await asyncio.sleep(0.05)


async def deleted(client: Client, name: str, uid: str) -> None:
    """Delete a pod that must be there, unless an earlier request without an answer has deleted it."""
    for attempt in count():
        try:
            await client.delete(PODS, name, "default", uid=uid)
            return
        except ApiError as error:
            if error.code != 404 or not attempt:
                raise AssertionError(f"{name} was confirmed, and now: {error}") from error
            return
        except (OSError, TimeoutError):
            await asyncio.sleep(0.05)


async def look(client: Client, witness: Witness, nodes: list[Json]) -> None:
    while True:
        with suppress(OSError, TimeoutError):
            witness.see(nodes, (await client.list(PODS)).items)
        await asyncio.sleep(0.05)


async def kill(options: list[str | Path], witness: Witness) -> int:
    """Start and kill it again and again: at any moment, and in every second round not before it has done something."""
    kills = 0
    for round in range(KILLS):
        command = [sys.executable, "-m", "subak.cli", "up", *map(str, options)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=commands({}))
        try:
            if round % 2:
                await until("it goes on where it was", partial(_more, witness, witness.confirmed + TENANTS))
            await asyncio.sleep(witness.chance.uniform(0, 2))
        finally:
            process.kill()
            code = await asyncio.to_thread(process.wait)
        assert code == -signal.SIGKILL, f"it had ended by itself, with {code}"
        kills += 1
    return kills


async def _more(witness: Witness, wanted: int) -> bool:
    return witness.confirmed >= wanted


@pytest.mark.long
def test_nothing_is_lost_and_no_card_is_overcommitted_whenever_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hardware.yaml").write_text(HARDWARE)
    options: list[str | Path] = ["--state", tmp_path / "state", "--hardware", tmp_path / "hardware.yaml"]
    # The same address and, with the state, the same certificate: clients need not notice a restart.
    options += ["--kubeconfig", tmp_path / "kubeconfig", "--port", str(free_port())]
    asyncio.run(storm(options))
    left = [each for kind in ("pods", "logs") for each in (tmp_path / "state" / "machine" / kind).iterdir()]
    assert left == []


async def storm(options: list[str | Path]) -> None:
    witness = Witness()
    with live(*options) as first:
        client = client_of(first.kubeconfig)
        nodes = (await client.list(NODES)).items
        first.stop(signal.SIGKILL)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look(client, witness, nodes))
        tenants = [group.create_task(tenant(client, witness, number)) for number in range(TENANTS)]
        assert await kill(options, witness) == KILLS
        with live(*options) as last:
            witness.over = True
            await asyncio.wait(tenants)
            await calm(client, witness)
            looking.cancel()
            await client.close()
            assert last.stop() == 0


async def calm(client: Client, witness: Witness) -> None:
    """Count what is there after the storm, and empty the cards."""
    expected = {name: uid for name, uid in witness.made.items() if name not in witness.deleted}
    assert len(expected) == TENANTS

    async def settled() -> bool:
        """The deleted ones are gone, the others run once each if a card has room, and nothing else runs."""
        pods = {each["metadata"]["name"]: each for each in (await client.list(PODS)).items}
        if {name: each["metadata"]["uid"] for name, each in pods.items()} != expected:
            return False
        on_cards = [name for name, each in pods.items() if each["spec"].get("nodeName")]
        return Counter({name: len(running(mark(name))) for name in witness.made}) == Counter(on_cards)

    await until("the pods that were not deleted are there, each of them once", settled)
    assert (witness.looks > KILLS, len(witness.deleted) > TENANTS) == (True, True)
    await remove(client, *expected)
    whole = [f"whole-{number}" for number in range(CARDS)]
    for name in whole:
        await client.create(PODS, pod(name, "sleep", "1000", limits=WHOLE), "default")
    for name in whole:
        await until_phase(client, name, "Running")
    await remove(client, *whole)
    assert [name for name in witness.made if running(mark(name))] == []
    print(f"{KILLS} kills, {len(witness.made)} pods, {len(witness.deleted)} deletions, {witness.looks} looks")
