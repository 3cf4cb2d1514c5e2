from __future__ import annotations

from typing import Any

from tests.tinykube.server.controllers.world import World
from tinykube.server.controllers.quotas import Quotas
from tinykube.server.kinds import CONFIG_MAP, RESOURCE_QUOTA

HARD = {"count/configmaps": "3"}


def status(world: World) -> Any:
    [quota] = world.store.list(RESOURCE_QUOTA)
    return quota["status"]


def test_a_quota_of_an_earlier_run_is_counted_at_once() -> None:
    earlier = World()
    earlier.create(RESOURCE_QUOTA, "q", spec={"hard": HARD})
    earlier.create(CONFIG_MAP, "a")
    world = World(earlier.store)
    world.runs(Quotas(world.registry))
    assert status(world) == {"hard": HARD, "used": {"count/configmaps": "1"}}


def test_what_is_counted_is_not_counted_again_until_something_changes() -> None:
    world = World()
    quotas = world.runs(Quotas(world.registry))
    world.create(RESOURCE_QUOTA, "q", spec={"hard": HARD})
    quotas.pass_time(1)
    assert status(world)["used"] == {"count/configmaps": "0"}
    revision = world.store.revision
    quotas.pass_time(100)
    assert world.store.revision == revision
    world.create(CONFIG_MAP, "a")
    quotas.pass_time(1)
    assert status(world)["used"] == {"count/configmaps": "1"}


def test_other_namespaces_do_not_matter() -> None:
    world = World()
    quotas = world.runs(Quotas(world.registry))
    world.create(RESOURCE_QUOTA, "q", spec={"hard": HARD})
    quotas.pass_time(1)
    world.create(CONFIG_MAP, "a", "kube-public")
    assert quotas.due is None
