"""A cluster some of whose objects cannot be read: it starts, names them, and goes on with the others."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from subak.cli.live import picture
from subak.local.cluster import LocalCluster
from subak.local.state import not_served, set_aside
from tests.support.machines import INTERPRETER, machines
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, NAMESPACES, PODS, SECRETS, Resource
from tinykube.server.sqlite import Aside, SqliteJournal
from tinykube.status import ApiError

PATIENCE = 30.0
DEPLOYMENTS = Resource("apps", "v1", "deployments", kind="Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", kind="ReplicaSet")
NODES = machines({"profile": "shared", "name": "a", "taints": [], "cards": {"count": 1}})


def pod(name: str, **resources: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "command": ["sleep", "9"], "resources": {"limits": resources}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


WHOLE = {"nvidia.com/gpu": 1}


def cluster(state: Path) -> LocalCluster:
    return LocalCluster(NODES, INTERPRETER, state=state, runtime="none")


async def until_bound(client: Client, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (await client.get(PODS, name, "default"))["spec"].get("nodeName"):
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a cluster with something of most kinds."""
    state = tmp_path_factory.mktemp("unreadable") / "state"
    asyncio.run(_fill(state))
    return state


async def _fill(state: Path) -> None:
    async with cluster(state) as running:
        client = running.client
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}}, "team")
        await client.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, "team")
        await client.create(PODS, pod("holder", **WHOLE), "default")
        labels = {"matchLabels": {"app": "d"}}
        template = {"metadata": {"labels": {"app": "d"}}, "spec": pod("d")["spec"]}
        spec = {"replicas": 1, "selector": labels, "template": template}
        await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, "default")
        await until_bound(client, "holder")
        async with asyncio.timeout(PATIENCE):
            while len((await client.list(PODS)).items) < 2:
                await asyncio.sleep(0.01)


@pytest.fixture
def state(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "state")
    return tmp_path / "state"


def names(state: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(state / "state.db")) as connection:
        return set(connection.execute("SELECT resource, key FROM objects"))


def damage(state: Path, *rows: tuple[str, str]) -> None:
    with closing(sqlite3.connect(state / "state.db", isolation_level=None)) as connection:
        for row in rows:
            connection.execute("UPDATE objects SET data = x'7b00' WHERE resource = ? AND key = ?", row)


async def test_whatever_kind_a_damaged_object_is_of_the_cluster_starts_without_it(
    template: Path, tmp_path: Path
) -> None:
    kept = names(template)
    resources = {resource for resource, _ in kept} - {"events"}  # they expire by themselves
    assert {"pods", "nodes", "namespaces", "secrets", "deployments.apps", "queues.scheduling.volcano.sh"} <= resources
    for resource in sorted(resources):
        state = tmp_path / resource
        shutil.copytree(template, state)
        rows = {each for each in kept if each[0] == resource}
        damage(state, *rows)
        async with cluster(state) as running:
            said = " ".join(running.notes)
            assert f"{resource} {min(rows)[1]} (its bytes have changed)" in said or len(rows) > 5, running.notes
            assert "SELECT * FROM aside" in said
        lost = {each for each in kept - names(state) - rows if each[0] not in ("events", "leases.coordination.k8s.io")}
        assert lost == set(), f"without its {resource}"


async def test_what_a_pod_held_that_cannot_be_read_is_free_and_given_once(state: Path) -> None:
    damage(state, ("pods", "default/holder"))
    for _ in range(2):
        async with cluster(state) as running:
            assert any("pods default/holder (its bytes have changed)" in note for note in running.notes)
            client = running.client
            if not [each for each in (await client.list(PODS)).items if each["metadata"]["name"] == "next"]:
                await client.create(PODS, pod("next", **WHOLE), "default")
            await until_bound(client, "next")
            now = await picture(client)
            (card,) = now.cluster.snapshot.cards("a")
            assert list(card.tenants) == ["default/next"]
            assert min(card.memory_free, card.cores_free) >= 0


async def test_a_lost_device_config_is_told_until_there_is_another(state: Path) -> None:
    damage(state, ("configmaps", "subak-system/hami-scheduler-device"))
    for told in (True, False):
        async with cluster(state) as running:
            assert any("the device config of the last start is lost" in note for note in running.notes) is told


def test_many_objects_are_counted_and_some_are_named() -> None:
    many = [Aside("pods", f"default/p{number}", "its revision is -1") for number in range(1_205)]
    (note,) = set_aside(Path("/a b/state.db"), many)
    assert note.startswith("1,205 objects of /a b/state.db cannot be read: pods default/p0 (its revision is -1), ")
    assert "p4" in note
    assert "p5" not in note
    assert "1,200 more" in note
    assert "sqlite3 '/a b/state.db' 'SELECT * FROM aside'" in note
    assert set_aside(Path("state.db"), []) == []


def test_kinds_that_are_not_served_are_named() -> None:
    counts = Counter({"pods": 3, "widgets.io": 1_200})
    assert not_served(Path("s/state.db"), counts, {"pods"}) == [
        "s/state.db also keeps objects of kinds that this program does not serve: 1,200 widgets.io"
    ]
    assert not_served(Path("s/state.db"), counts, {"pods", "widgets.io"}) == []


async def test_what_a_full_disk_held_up_is_done_when_there_is_room_again(state: Path) -> None:
    async with cluster(state) as running, asyncio.timeout(PATIENCE):
        client, journal = running.client, running.server._store._journal
        assert isinstance(journal, SqliteJournal)
        await client.create(PODS, pod("small", **{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10}), "default")
        await client.delete(PODS, "holder", "default", grace=0)
        await client.delete(DEPLOYMENTS, "d", "default")
        journal._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(ApiError, match=r"state\.db cannot be written: .*; nothing was changed: make room there"):
            await client.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
        for _ in range(200):
            await asyncio.sleep(0.005)  # everybody tries, in vain
        before = names(state)
        assert ("pods", "default/holder") in before or ("replicasets.apps" in {resource for resource, _ in before})
        journal._connection.execute("PRAGMA query_only = OFF")
        await until_bound(client, "small")
        while (await client.list(REPLICA_SETS)).items or len((await client.list(PODS)).items) > 1:
            await asyncio.sleep(0.01)
        stored = {
            (kind.resource, key) for kind in running.server._store.kinds for key, _ in running.server._store.range(kind)
        }
        assert stored == names(state), "memory and disk agree"
        assert ("configmaps", "default/lost") not in stored
