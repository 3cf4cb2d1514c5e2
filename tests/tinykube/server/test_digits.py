from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.junk import nothing_logged
from tests.support.talk import CONFIG_MAPS, PODS, Talk, config_map, pod
from tinykube.server import digits

LONG = "9" * 5000
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-7", -7), ("+7", 7), ("0" * 9000 + "7", 7), (str(2**64), 2**64), (LONG, None), ("", None),
     ("-", None), ("1.0", None), ("1\n", None), ("\u0661", None)],
)  # fmt: skip
def test_whole_numbers(text: str, number: int | None) -> None:
    assert digits.whole(text) == number


@pytest.mark.parametrize(
    "query",
    [{"limit": LONG}, {"limit": f"-{LONG}"}, {"resourceVersion": LONG}, {"labelSelector": f"a>{LONG}"},
     {"watch": "1", "timeoutSeconds": LONG}],
)  # fmt: skip
async def test_a_question_with_a_number_of_thousands_of_digits_is_the_clients_mistake(query: dict[str, str]) -> None:
    with nothing_logged():
        answer = await Talk().send("GET", CONFIG_MAPS, **query)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_so_is_an_index_of_thousands_of_digits() -> None:
    talk = Talk()
    await talk.create(CONFIG_MAPS, config_map())
    with nothing_logged():
        change = [{"op": "remove", "path": f"/metadata/managedFields/{LONG}"}]
        assert (await talk.send("PATCH", f"{CONFIG_MAPS}/c", change, patch="json")).code == 422


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PODS, {**pod(), "metadata": {"name": "p", "annotations": {
            "controller.kubernetes.io/pod-deletion-cost": LONG}}}, 422),
        (DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {**WORKLOAD, "strategy": {
            "rollingUpdate": {"maxSurge": "9" * 400 + "%"}}}}, 422),
        (DAEMON_SETS, {"metadata": {"name": "d", "annotations": {
            "deprecated.daemonset.template.generation": LONG}}, "spec": WORKLOAD}, 201),
    ],
)  # fmt: skip
async def test_objects_with_such_numbers_are_refused_or_do_no_harm(path: str, body: Any, code: int) -> None:
    talk = Talk()
    with nothing_logged():
        assert (await talk.send("POST", path, body)).code == code
        await turns()
    await talk.server.close()


async def test_a_revision_of_thousands_of_digits_counts_for_nothing() -> None:
    talk = Talk()
    sets = DEPLOYMENTS.replace("deployments", "replicasets")
    with nothing_logged():
        await talk.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": WORKLOAD})
        await turns()
        (made,) = (await talk.get(sets))["items"]
        lie = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": LONG}}}
        await talk.patch(f"{sets}/{made['metadata']['name']}", "merge", lie)
        await turns()
    (made,) = (await talk.get(sets))["items"]
    assert made["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    await talk.server.close()


async def turns() -> None:
    """Let controllers do their part."""
    for _ in range(50):
        await asyncio.sleep(0)
