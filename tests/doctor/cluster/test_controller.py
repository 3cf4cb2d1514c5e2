"""The controller: its Lease, its replicas and their versions."""

from __future__ import annotations

from typing import Any

import pytest

from subak import __version__
from subak.doctor import Level
from subak.doctor.cluster import Cluster, controller
from tests.doctor.canned import SUBAK, Answer, client, items
from tests.doctor.cluster.worlds import NOW, found, lease, leases, levels, nothing
from tinykube.status import ApiError

READY = {"ready": True, "version": __version__, "role": "leader", "served": ["subak"], "trouble": []}
SERVICE = f"GET {SUBAK}/services/subak-controller:http/proxy/readyz"


def pod(name: str, ready: bool = True, component: str = "controller", image: str = "subak") -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "subak", "app.kubernetes.io/component": component}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    status = {
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{"state": {} if ready else waiting}],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"image": image}]}, "status": status}


def window(name: str, said: Answer, port: int = 9440) -> dict[str, Answer]:
    return {f"GET {SUBAK}/pods/http:{name}:{port}/proxy/readyz": said}


@pytest.mark.parametrize(
    ("known", "level", "words"),
    [
        ([lease("subak-controller", "one")], Level.OK, "one leads"),
        ([], Level.FAILED, "no controller has run here"),
        ([lease("subak-controller", "")], Level.FAILED, "nobody holds"),
        ([lease("subak-controller", "one", seconds_ago=75)], Level.FAILED, "for 60 s longer than it lasts"),
        ([lease("other")], Level.FAILED, "no controller has run here"),
    ],
)
async def test_whether_a_replica_leads(known: list[dict[str, Any]], level: Level, words: str) -> None:
    (finding,) = await found(controller.leader, leases(*known))
    assert finding.level is level
    assert words in finding.seen


async def test_the_lease_is_compared_with_the_time_of_the_api_server() -> None:
    """This computer's clock is half an hour late, the API server's is right."""
    date = NOW.strftime("%a, %d %b %Y %H:%M:%S GMT")
    late = Cluster(
        client(leases(lease("subak-controller", seconds_ago=60)), date), nothing, clock=lambda: NOW.timestamp() - 1800
    )
    assert levels(await controller.leader(late)) == [Level.FAILED]


async def test_a_controller_that_needs_no_lease() -> None:
    (finding,) = await found(controller.leader, leases() | {SERVICE: READY})
    assert (finding.level, "without a Lease" in finding.seen) == (Level.OK, True)
    assert levels(await found(controller.leader, leases() | {SERVICE: {**READY, "role": "standby"}})) == [Level.FAILED]


async def test_replicas_that_are_ready_and_one_that_is_not() -> None:
    two: dict[str, Answer] = {f"GET {SUBAK}/pods": items(pod("a"), pod("b"))}
    both = two | window("a", READY) | window("b", READY)
    assert [each.seen for each in await found(controller.replicas, both)] == ["2 ready"]
    troubled = two | window("a", READY) | window("b", {**READY, "trouble": ["no right to write"]})
    (finding,) = await found(controller.replicas, troubled)
    assert (finding.level, finding.seen) == (Level.FAILED, "b: no right to write")
    waiting = two | window("a", READY) | window("b", {**READY, "ready": False, "waiting_for": ["nodes"]})
    (finding,) = await found(controller.replicas, waiting)
    assert "b: it is not ready: it waits for nodes" in finding.seen
    (finding,) = await found(controller.replicas, {f"GET {SUBAK}/pods": items(pod("a", ready=False))})
    assert finding.seen == "pod a is not ready: ImagePullBackOff no such image"
    (finding,) = await found(controller.replicas, {f"GET {SUBAK}/pods": items(pod("a"))} | window("a", READY))
    assert (finding.level, "only replica" in finding.seen) == (Level.WARNING, True)


async def test_a_controller_outside_the_cluster_is_not_known() -> None:
    nobody: dict[str, Answer] = {f"GET {SUBAK}/pods": items()}
    assert levels(await found(controller.replicas, nobody)) == [Level.UNKNOWN]
    assert levels(await found(controller.replicas, nobody | {SERVICE: READY})) == [Level.OK]
    unavailable = ApiError(503, "ServiceUnavailable", "no endpoints available")
    assert levels(await found(controller.replicas, nobody | {SERVICE: unavailable})) == [Level.UNKNOWN]


@pytest.mark.parametrize(
    ("images", "level", "words"),
    [
        ([f"r/subak:v{__version__}", f"r/subak:{__version__}@sha256:0"], Level.OK, __version__),
        (["subak:9.0.0", "subak:9.1.0"], Level.WARNING, "9.0.0: p0; 9.1.0: p1"),
        (["subak:9.0.0"], Level.WARNING, f"they are 9.0.0, this command is {__version__}"),
        (["subak:latest"], Level.UNKNOWN, "tells its version"),
        (["localhost:5000/subak"], Level.UNKNOWN, "tells its version"),
    ],
)
async def test_versions_by_images_where_programs_do_not_tell(images: list[str], level: Level, words: str) -> None:
    pods = [pod(f"p{i}", component="agent" if i else "controller", image=image) for i, image in enumerate(images)]
    (finding,) = await found(controller.versions, {f"GET {SUBAK}/pods": items(*pods)})
    assert finding.level is level
    assert words in finding.seen


async def test_what_a_program_says_counts_before_its_image() -> None:
    pods: dict[str, Answer] = {f"GET {SUBAK}/pods": items(pod("a", image="subak:9.9.9"))}
    (finding,) = await found(controller.versions, pods | window("a", READY))
    assert (finding.level, finding.seen) == (Level.OK, __version__)


@pytest.mark.parametrize("check", [controller.replicas, controller.versions])
async def test_subak_up_has_no_replicas(check: Any) -> None:
    assert await found(check, {"GET /version": {"gitVersion": "v1.36.3+subak"}}) == []
