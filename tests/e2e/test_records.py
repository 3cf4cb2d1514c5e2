"""The guard of records on a real API server: it stands at all doors, no door is missing, and it needs none of us.

In most tests here our objects are on the API server and none of our programs runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.admission import objects
from subak.admission.records import Writers
from subak.admission.scope import Scope
from subak.model import manifest
from tests.e2e import namespace
from tests.e2e.admission import POLICY, SERVED, attempt, eventually, plain_pod, refused, remove
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator
from tests.e2e.impersonation import opened
from tests.support.doors import (
    BINDINGS,
    HELD,
    INTERPRETER,
    OWNED,
    SCHEDULER,
    TENANT,
    WRITERS,
    Asked,
    forge_everywhere,
    sequences,
    write_all,
)
from tests.support.fuzz import examples
from tests.support.talk import PODS, binding
from tinykube.user import AUTHENTICATED, MASTERS, User

AGENT = "system:serviceaccount:subak-system:subak-agent"
LABEL = "hami.io/vgpu-node"
SCOPE = Scope(INTERPRETER.resources, OWNED, SERVED)
NOBODY = objects.Address("", "", f"https://{namespace.ADDRESS}:1")


@pytest.fixture(scope="module")
def unattended(cluster: Cluster) -> Iterator[Cluster]:
    """A real cluster with our objects, whose webhook is down."""
    writers = Writers(WRITERS.everywhere, frozenset({AGENT}))

    async def put() -> None:
        async with administrator(cluster) as client:
            for each in (*objects.policies(SCOPE, writers), *objects.webhooks(SCOPE, NOBODY, "")):
                await client.create(each.resource, each.body())
            await eventually(lambda: refused(client, plain_pod({}, annotations=HELD), POLICY))
            await eventually(lambda: refused(client, plain_pod({"nvidia.com/gpu": "1"}), "failed calling webhook"))

    async def take() -> None:
        async with administrator(cluster) as client:
            await remove(client)

    asyncio.run(put())
    yield cluster
    asyncio.run(take())


@pytest.mark.parametrize("key", [*HELD, "hami.io/bind-phase"])
async def test_a_forged_record_is_refused_at_every_door(unattended: Cluster, key: str) -> None:
    async with opened(unattended) as world:
        await forge_everywhere(world, key, speaker=POLICY)


async def test_a_forged_label_is_refused_at_every_door(unattended: Cluster) -> None:
    async with opened(unattended) as world:
        await forge_everywhere(world, LABEL, "labels", POLICY)


@examples(40, 100)
@given(sequence=sequences)
def test_no_write_of_a_user_changes_a_record_and_all_others_are_answered_as_ever(
    unattended: Cluster, sequence: list[Asked]
) -> None:
    async def story() -> None:
        async with opened(unattended) as world:
            await write_all(world, sequence, same_words=True)

    asyncio.run(story())


async def test_the_other_subresources_take_neither_annotations_nor_labels(unattended: Cluster) -> None:
    """Those that the embedded server does not have: a record that is sent there is dropped."""
    async with opened(unattended) as world:
        before, kept = await world.records(), (await world.talk.get(f"{PODS}/p"))["metadata"]["labels"]
        for door in ("ephemeralcontainers", "resize"):
            whole = await world.talk.get(f"{PODS}/p")
            forged = {"annotations": {"volcano.sh/gpu-index": "7"}, "labels": {LABEL: "n2"}}
            whole["metadata"] |= forged
            change = {"metadata": forged}
            for answer in (
                await world.talk.send("PUT", f"{PODS}/p/{door}", whole, user=TENANT),
                await world.talk.send("PATCH", f"{PODS}/p/{door}", change, patch="merge", user=TENANT),
            ):
                assert answer.code == 200, answer.body
                assert await world.records() == before
                assert (await world.talk.get(f"{PODS}/p"))["metadata"]["labels"] == kept


async def test_an_agent_writes_the_records_of_its_own_node_only(unattended: Cluster) -> None:
    here, elsewhere, unknown = (User(AGENT, (MASTERS, AUTHENTICATED), node=node) for node in ("n1", "n2", ""))
    change = {"metadata": {"annotations": {"hami.io/bind-phase": "success", "volcano.sh/gpu-index": None}}}
    async with opened(unattended) as world:
        for user, name, code in ((here, "p", 200), (elsewhere, "p", 403), (unknown, "p", 403), (here, "q", 403)):
            for path in (f"{PODS}/{name}", f"{PODS}/{name}/status"):
                answer = await world.talk.send("PATCH", path, change, patch="merge", user=user, dryRun="All")
                assert answer.code == code, (user, path, answer.body)
        await forge_everywhere(world, "hami.io/bind-phase", speaker=POLICY, user=elsewhere)
        for path in (f"{PODS}/q/binding", BINDINGS):
            assert (await world.talk.send("POST", path, binding("q", annotations=HELD), user=here)).code == 403


async def test_the_scheduler_writes_and_puts_back(unattended: Cluster) -> None:
    async with opened(unattended) as world:
        body = {"metadata": {"annotations": {"volcano.sh/gpu-index": "1", "hami.io/bind-phase": None}}}
        done = await world.talk.patch(f"{PODS}/p", "merge", body, user=SCHEDULER)
        assert done["metadata"]["annotations"]["volcano.sh/gpu-index"] == "1"
        bound = binding("q", annotations=HELD, labels={LABEL: "n1"})
        await world.talk.create(BINDINGS, bound, user=SCHEDULER)
        assert (await world.talk.get(f"{PODS}/q"))["metadata"]["labels"] == {LABEL: "n1", "app": "q"}
        removal = {"metadata": {"labels": None}}
        answer = await world.talk.send("PATCH", f"{PODS}/q", removal, patch="merge", user=TENANT)
        assert answer.code == 403
        assert f'may not remove metadata.labels[{LABEL}], which is "n1"' in answer.body["message"]


async def test_life_goes_on_while_the_webhook_is_down(unattended: Cluster) -> None:
    """Pods without cards are created, pods with records are changed, lose finalizers and go."""
    many = {f"k{number}": "" for number in range(2_000)}
    containers = [{"name": f"c{number}", "image": "none", "env": [{"name": "A"}] * 50} for number in range(50)]
    async with opened(unattended) as world:
        large = {"metadata": {"name": "large", "annotations": many}, "spec": {"containers": containers}}
        await world.talk.create(PODS, large, user=TENANT)
        touched = {"metadata": {"annotations": {"k7": None}, "finalizers": ["example.com/a"]}}
        for name in ("large", "p"):
            path = f"{PODS}/{name}"
            await world.talk.patch(path, "merge", touched, user=TENANT)
            assert (await world.talk.send("DELETE", path, user=TENANT, gracePeriodSeconds=0)).code == 200
            await world.talk.patch(path, "merge", {"metadata": {"finalizers": None}}, user=TENANT)
            assert (await world.talk.send("GET", path)).code == 404
        asking = plain_pod({"nvidia.com/gpu": "1"})
        answer = await world.talk.send("POST", PODS, asking, user=TENANT)
        assert (answer.code, 'failed calling webhook "pods.subak.io"' in answer.body["message"]) == (500, True)


# The rule that says which pods are ours, in both languages

_names = st.sampled_from([*sorted(each for each in SCOPE.resources if "kubernetes.io" not in each), "example.com/gpu"])
_amounts = st.dictionaries(_names | st.just("cpu"), st.just("1"), max_size=2)
_resources = st.none() | st.builds(lambda limits: {"limits": limits}, _amounts)
_lists = st.lists(_resources, max_size=2)
_keys = st.sampled_from([*HELD, "note", "iluvatar.ai/predicate-gpu-idx", "hami.io/gpu-scheduler-policy", LABEL])
_labels = st.dictionaries(
    st.sampled_from(["hami.io/webhook", "subak.io/webhook", "app", LABEL]), st.sampled_from(["ignore", "x"]), max_size=2
)
_pods = st.fixed_dictionaries(
    {
        "containers": st.tuples(_resources, _lists),
        "early": _lists,
        "scheduler": st.sampled_from([None, "default-scheduler", "subak", "volcano", "somebody-else"]),
        "labels": st.none() | _labels,
        "annotations": st.none() | st.dictionaries(_keys, st.just("0"), max_size=2),
    }
)


def _containers(name: str, resources: list[Any]) -> list[dict[str, Any]]:
    named = [{"name": f"{name}{number}", "image": "none"} for number in range(len(resources))]
    return [each | ({} if more is None else {"resources": more}) for each, more in zip(named, resources, strict=True)]


@examples(100, 500)
@given(_pods)
def test_the_api_server_and_we_agree_on_which_pods_are_ours(unattended: Cluster, drawn: dict[str, Any]) -> None:
    """Those that are ours fail while the webhook is down; those that carry records are refused by the policy."""
    first, others = drawn["containers"]
    spec = {
        "containers": _containers("c", [first, *others]),
        "initContainers": _containers("i", drawn["early"]),
        "schedulerName": drawn["scheduler"],
    }
    metadata = {"name": "new", "labels": drawn["labels"], "annotations": drawn["annotations"]}
    sent = {"metadata": metadata, "spec": {key: value for key, value in spec.items() if value}}
    lean = msgspec.convert({**sent, "spec": {**sent["spec"], "schedulerName": drawn["scheduler"] or ""}}, manifest.Pod)
    expected = 500 if SCOPE.reviews(lean) else 403 if OWNED.among(sent) else None

    async def story() -> None:
        async with administrator(unattended) as client:
            answer = await attempt(client, sent)
            assert (answer and answer.code) == expected, answer

    asyncio.run(story())
