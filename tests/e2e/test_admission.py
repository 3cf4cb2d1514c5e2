"""Admission on a real API server: what is completed, what is refused in which words, how certificates change."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from subak.admission import certificates, objects, policy
from subak.admission.review import review
from subak.admission.scope import Scope
from subak.admission.service import NAMESPACE
from subak.local.hardware import profiles
from subak.scheduler.service import Service
from tests.e2e import namespace
from tests.e2e.admission import (
    ACCOUNT,
    OBJECTS,
    OPTIONS,
    POLICY,
    SERVED,
    World,
    admission,
    attempt,
    eventually,
    plain_pod,
    refused,
)
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.impersonation import opened
from tests.support.documents import pods_of_the_documents
from tests.support.doors import HELD, INTERPRETER, OWNED, SCHEDULER, WRITERS, forge_everywhere
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.resource import PODS, SECRETS
from tinykube.status import ApiError
from tinykube.user import AUTHENTICATED, MASTERS, User

HALF = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
SWITCH = {"name": "CUDA_DISABLE_CONTROL", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
NONSENSE: list[dict[str, Any]] = [
    plain_pod({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "101"}),
    plain_pod({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "150"}),
    plain_pod({"nvidia.com/gpu": "1", "volcano.sh/gpu-memory": "1024"}),
    plain_pod({"koordinator.sh/gpu-core": "50"}),
    plain_pod(HALF, annotations={"hami.io/node-scheduler-policy": "best"}),
    plain_pod({**HALF, "nvidia.com/gpumem": "9E"}),
]


def changed(pod: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The pod with other fields of its container."""
    (container,) = pod["spec"]["containers"]
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, **more}]}}


async def test_new_pods_are_completed_and_sent_to_us_or_refused_in_our_words(cluster: Cluster) -> None:
    async with admission(cluster) as world:
        await world.ready()
        await documents_pass(world)
        await nonsense_is_refused(world)
        await loopholes_are_refused(world)
        await others_are_left_alone(world)


async def documents_pass(world: World) -> None:
    pods = pods_of_the_documents()
    assert len(pods) > 8
    for sent in pods:
        stored = await world.client.create(PODS, sent, "default", dry_run=True)
        named = sent["spec"].get("schedulerName")
        assert stored["spec"]["schedulerName"] == (named or "subak")
        assert review(INTERPRETER, stored) == stored, "nothing is left to fill in"


async def nonsense_is_refused(world: World) -> None:
    for sent in NONSENSE:
        limits = sent["spec"]["containers"][0]["resources"]["limits"]
        defaulted = changed(sent, resources={"limits": limits, "requests": limits})
        with pytest.raises(ApiError) as expected:
            review(INTERPRETER, defaulted)
        answer = await attempt(world.client, sent)
        assert answer is not None
        assert (answer.code, answer.message) == (403, expected.value.message)
        assert answer.details["causes"] == expected.value.details["causes"]


async def loopholes_are_refused(world: World) -> None:
    for more, field in (
        ({"env": [{"name": "A"}, SWITCH]}, "spec.containers[0].env[1]"),
        ({"securityContext": {"privileged": True}}, "spec.containers[0].securityContext.privileged"),
    ):
        answer = await attempt(world.client, changed(plain_pod(HALF), **more))
        assert answer is not None
        assert answer.code == 403
        assert [each["field"] for each in answer.details["causes"]] == [field]
        assert await attempt(world.client, changed(plain_pod({"cpu": "1"}), **more)) is None


async def others_are_left_alone(world: World) -> None:
    nonsense = NONSENSE[0]
    other = {**nonsense, "spec": {**nonsense["spec"], "schedulerName": "somebody-else"}}
    stored = await world.client.create(PODS, other, "default", dry_run=True)
    assert stored["spec"]["schedulerName"] == "somebody-else"
    opted_out = {**nonsense, "metadata": {"generateName": "p-", "labels": {"hami.io/webhook": "ignore"}}}
    stored = await world.client.create(PODS, opted_out, "default", dry_run=True)
    assert stored["spec"]["schedulerName"] == "default-scheduler"
    evading = {**opted_out, "spec": {**nonsense["spec"], "schedulerName": "subak"}}
    assert await attempt(world.client, evading) is not None


async def test_pods_of_the_documents_are_completed_placed_and_recorded(cluster: Cluster) -> None:
    """The scheduler is an ordinary user but for the policy, which lets it write records."""
    sent = [
        {**each, "metadata": {**each["metadata"], "name": f"{each['metadata']['name']}-{number}"}}
        for number, each in enumerate(pods_of_the_documents())
        if each["metadata"]["name"] != "too-big"
    ]
    names = {each["metadata"]["name"] for each in sent}
    as_scheduler = (("impersonate-user", SCHEDULER.name), ("impersonate-group", MASTERS))
    transport = HttpTransport(replace(load(cluster.kubeconfig), impersonate=as_scheduler))
    service = Service(Client(transport), INTERPRETER, lambda pod: pod.spec.scheduler_name in SERVED)
    async with admission(cluster) as world, fake_nodes(world.client, profiles.default(INTERPRETER)):
        await world.ready()
        running = asyncio.create_task(service.run())
        try:
            for each in sent:
                await world.client.create(PODS, each, "default")

            async def placed() -> bool:
                found = (await world.client.list(PODS, "default")).items
                bound = {
                    each["metadata"]["name"] for each in found if each["spec"].get("nodeName") and OWNED.among(each)
                }
                return bound == names

            await eventually(placed)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await transport.close()
            for name in names:
                with suppress(ApiError):
                    await world.client.delete(PODS, name, "default", grace=0)


async def test_a_forged_record_is_refused_while_the_webhook_is_up(cluster: Cluster) -> None:
    async with admission(cluster) as ours, opened(cluster) as world:
        await ours.ready()
        for key in HELD:
            await forge_everywhere(world, key, speaker=POLICY)
        # Whoever runs admission is a writer without being named: it must not stop its own Bindings.
        ourselves = User(dict(ACCOUNT)["impersonate-user"], (MASTERS, AUTHENTICATED))
        change = {"metadata": {"annotations": {"volcano.sh/gpu-index": "1"}}}
        await world.talk.patch(f"{PODS.path('default')}/p", "merge", change, user=ourselves)


async def test_an_administrator_may_allow_ways_around_limits(cluster: Cluster) -> None:
    async with admission(cluster, options=replace(OPTIONS, allowed=frozenset({"privileged"}))) as world:
        privileged = changed(plain_pod(HALF), securityContext={"privileged": True})
        switched = changed(plain_pod(HALF), env=[SWITCH])
        await eventually(lambda: refused(world.client, switched, "CUDA_DISABLE_CONTROL"))
        await eventually(world.completes)
        stored = await world.client.create(PODS, privileged, "default", dry_run=True)
        assert stored["spec"]["schedulerName"] == "subak"


@pytest.mark.parametrize("url", ["", "https://127.0.0.1:9443"])
async def test_the_api_server_stores_our_objects_as_they_are_written(cluster: Cluster, url: str) -> None:
    """Otherwise we would take its defaults for changes that somebody has made."""
    scope = Scope(INTERPRETER.resources, OWNED, SERVED)
    bundle = certificates.bundle([certificates.make(frozenset({"a"}), datetime.now(UTC), timedelta(days=1))])
    address = objects.Address(NAMESPACE, "subak-webhook", url)
    async with administrator(cluster) as client:
        for each in (*objects.policies(scope, WRITERS), *objects.webhooks(scope, address, bundle)):
            stored = await client.create(each.resource, each.body(), dry_run=True, validation="Strict")
            assert each.holds(stored), each.resource


async def test_what_is_changed_or_deleted_is_put_back(cluster: Cluster) -> None:
    async with admission(cluster) as world:
        await world.ready()
        before = {place: await world.client.get(*place) for place in OBJECTS}
        never = {"name": "never", "expression": "false"}
        hook = before[OBJECTS[1]]["webhooks"][0]
        evaded = {"webhooks": [{**hook, "matchConditions": [*hook["matchConditions"], never]}]}
        await world.client.patch(objects.VALIDATING, objects.NAME, "", evaded)
        await world.client.delete(policy.POLICY_BINDINGS, policy.NAME)
        await world.client.delete(objects.MUTATING, objects.NAME)

        async def restored() -> bool:
            for place, object in before.items():
                try:
                    found = await world.client.get(*place)
                except ApiError:
                    return False
                if any(found.get(field) != object.get(field) for field in ("webhooks", "spec")):
                    return False
            return True

        await eventually(restored)
        revisions = [(await world.client.get(*place))["metadata"]["resourceVersion"] for place in OBJECTS]
        for replica in world.address.replicas:
            replica.lead()  # everything is looked at once more
        await world.ready()
        assert [(await world.client.get(*place))["metadata"]["resourceVersion"] for place in OBJECTS] == revisions
        assert [each.trouble for each in world.address.replicas] == [""]


class OnItsOwn(web.Response):
    """An answer that ends its connection, so that the API server looks at the certificate for every question."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.force_close()


async def test_certificates_change_under_load_and_no_pod_notices(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas; the first certificate is two months old when they look again."""
    monkeypatch.setattr(web, "Response", OnItsOwn)
    async with admission(cluster, replicas=2, moved=timedelta(days=-61)) as world:
        await world.ready()
        first = await world.client.get(SECRETS, OPTIONS.secret, NAMESPACE)
        assert [key for key in first["data"] if key.endswith("ca.crt")] == ["1.ca.crt"]
        created = 0
        ended = asyncio.Event()

        async def load() -> None:
            nonlocal created
            while not ended.is_set():
                await world.client.create(PODS, plain_pod(HALF), "default", dry_run=True)
                created += 1

        loads = [asyncio.create_task(load()) for _ in range(4)]
        try:
            world.clock.moved = timedelta()
            await eventually(lambda: presented_by_all(world, 2))
            so_far = created

            async def more() -> bool:
                return created > so_far + 20

            await eventually(more)
        finally:
            ended.set()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*loads)
        second = await world.client.get(SECRETS, OPTIONS.secret, NAMESPACE)
        assert sorted(second["data"])[:3] == sorted(first["data"])
        hook = (await world.client.get(objects.MUTATING, objects.NAME))["webhooks"][0]
        assert hook["clientConfig"]["caBundle"]


async def presented_by_all(world: World, generation: int) -> bool:
    """Whether each replica shows this certificate to whoever connects."""
    secret = await world.client.get(SECRETS, OPTIONS.secret, NAMESPACE)
    wanted = b64decode(secret["data"].get(f"{generation}.tls.crt", "")).decode()
    shown = [
        await asyncio.to_thread(ssl.get_server_certificate, (namespace.ADDRESS, each.webhook.port))
        for each in world.address.replicas
    ]
    return shown == [wanted] * len(shown)
