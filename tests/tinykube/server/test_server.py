"""Paths, methods, forms and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import yaml

from tests.support.talk import CONFIG_MAPS, NODES, PODS, TABLE, Talk, binding, config_map, pod
from tinykube.server.kubelet import LogOptions, Session
from tinykube.server.server import MOST_BYTES, Server
from tinykube.server.store import Store

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
YAML = "application/yaml"


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", f"{PODS}/p/nonsense", 404),
        ("PUT", "/api/v1/pods", 405),
        ("POST", "/api/v1/pods", 405),
        ("PATCH", PODS, 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("GET", f"{PODS}/p/binding", 405),
        ("DELETE", f"{PODS}/p/status", 405),
        ("POST", "/version", 405),
    ],
)
async def test_paths_and_methods_that_mean_nothing(talk: Talk, method: str, path: str, code: int) -> None:
    answer = await talk.send(method, path)
    assert (answer.code, answer.body["kind"], answer.body["details"]) == (code, "Status", {})


@pytest.mark.parametrize("path", ["/nonsense", "/apis/nonsense/v1/things", "/apis/scheduling.volcano.sh/v1beta1/no"])
async def test_paths_of_nobody(talk: Talk, path: str) -> None:
    answer = await talk.send("GET", path)
    assert (answer.code, answer.body) == (404, b"404 page not found\n")


async def test_items_of_lists_say_what_they_are_only_if_they_are_custom(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    await talk.create(
        QUEUES, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    )
    maps, queues = await talk.get(CONFIG_MAPS), await talk.get(QUEUES)
    assert (maps["kind"], "kind" in maps["items"][0]) == ("ConfigMapList", False)
    assert (queues["kind"], queues["items"][0]["kind"]) == ("QueueList", "Queue")


async def test_yaml_in_and_out(talk: Talk) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  when: 2024-01-01T00:00:00Z\n"
    assert (await talk.send("POST", CONFIG_MAPS, text, headers={"content-type": YAML})).code == 201
    answer = await talk.send("GET", f"{CONFIG_MAPS}/a", headers={"accept": YAML})
    assert answer.headers["content-type"] == YAML
    assert yaml.safe_load(answer.body)["data"] == {"when": "2024-01-01T00:00:00Z"}


async def test_clients_that_prefer_protobuf_take_json(talk: Talk) -> None:
    accept = "application/vnd.kubernetes.protobuf,application/json"
    assert (await talk.get(CONFIG_MAPS, headers={"accept": accept}))["kind"] == "ConfigMapList"
    assert (await talk.send("GET", CONFIG_MAPS, headers={"accept": "text/html"})).code == 406


async def test_an_older_server_can_be_asked_for_a_table(talk: Talk) -> None:
    await talk.create(CONFIG_MAPS, config_map("a"))
    accept = f"{TABLE},{TABLE.replace('v=v1', 'v=v1beta1')},application/json"
    assert (await talk.get(CONFIG_MAPS, headers={"accept": accept}))["kind"] == "Table"
    beta = await talk.get(CONFIG_MAPS, headers={"accept": TABLE.replace("v=v1", "v=v1beta1")})
    assert beta["apiVersion"] == "meta.k8s.io/v1beta1"


async def test_unknown_fields_are_warned_of_refused_or_ignored(talk: Talk) -> None:
    odd = {**config_map("a"), "dtaa": {}}
    assert (await talk.send("POST", CONFIG_MAPS, odd)).headers["warning"] == '299 - "unknown field \\"dtaa\\""'
    strict = await talk.send("POST", CONFIG_MAPS, odd, fieldValidation="Strict")
    assert (strict.code, "unknown field" in strict.body["message"]) == (400, True)
    await talk.send("DELETE", f"{CONFIG_MAPS}/a")
    assert "warning" not in (await talk.send("POST", CONFIG_MAPS, odd, fieldValidation="Ignore")).headers


async def test_people_get_indented_answers(talk: Talk) -> None:
    plain = await talk.raw("GET", CONFIG_MAPS)
    for options in ({"pretty": "true"}, {"headers": {"user-agent": "curl/8"}}):
        response = await talk.raw("GET", CONFIG_MAPS, **options)
        assert response.body.startswith(b'{\n  "kind"')
    assert b"\n" not in plain.body


async def test_a_body_can_be_too_large(talk: Talk) -> None:
    answer = await talk.send("POST", CONFIG_MAPS, b" " * (MOST_BYTES + 1))
    assert (answer.code, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_what_nobody_foresaw_is_an_internal_error(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(talk.server.registry.store, "create", broken)
    answer = await talk.send("POST", CONFIG_MAPS, config_map("a"))
    assert (answer.code, answer.body["message"]) == (500, "Internal error occurred: out of ideas")


@pytest.mark.parametrize("kind", ["strategic", "merge", "json", "apply"])
async def test_custom_kinds_know_no_strategic_merge(talk: Talk, kind: str) -> None:
    await talk.create(
        QUEUES, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    )
    answer = await talk.send("PATCH", f"{QUEUES}/q", b"{}", patch=kind, fieldManager="x")
    assert (answer.code == 415) is (kind == "strategic")


async def test_who_sends_without_a_pause_lets_others_have_their_turn(talk: Talk) -> None:
    async def send() -> None:
        while turns < 3:
            await talk.get(CONFIG_MAPS)

    turns = 0
    sending = asyncio.create_task(send())
    while turns < 3:
        await asyncio.sleep(0)
        turns += 1
    await sending


class Printer:
    """A kubelet that prints what it was asked for."""

    async def logs(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        async def lines() -> AsyncIterator[bytes]:
            yield f"{pod['metadata']['name']} {options.container} {options.tail_lines}\n".encode()

        return lines()

    async def execute(
        self, pod: dict[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Session:
        raise NotImplementedError

    async def summary(self, node: str) -> dict[str, Any]:
        return {"node": {"nodeName": node}, "pods": []}


async def test_the_kubelet_tells_what_pods_use() -> None:
    talk = Talk(Server(Store(), Printer()))
    await talk.create(NODES, {"metadata": {"name": "n1"}})
    answer = await talk.send("GET", f"{NODES}/n1/proxy/stats/summary")
    assert (answer.code, answer.body) == (200, {"node": {"nodeName": "n1"}, "pods": []})
    nowhere = await talk.send("GET", f"{NODES}/n2/proxy/stats/summary")
    assert (nowhere.code, nowhere.body["message"]) == (404, 'nodes "n2" not found')
    assert (await talk.raw("GET", f"{NODES}/n1/proxy/metrics")).status == 404
    assert (await talk.raw("DELETE", f"{NODES}/n1/proxy/stats/summary")).status == 405
    assert (await talk.send("GET", f"{NODES}/n1")).code == 200


async def test_logs_come_from_the_kubelet() -> None:
    talk = Talk(Server(Store(), Printer()))
    await talk.create(NODES, {"metadata": {"name": "n1"}})
    await talk.create(PODS, pod())
    assert (await talk.raw("GET", f"{PODS}/p/log")).status == 204, "it is on no node yet"
    await talk.create(f"{PODS}/p/binding", binding("p"))
    response = await talk.raw("GET", f"{PODS}/p/log", tailLines=5)
    assert response.stream is not None
    assert [chunk async for chunk in response.stream] == [b"p c 5\n"]
    answer = await talk.send("GET", f"{PODS}/p/log", container="x")
    assert answer.body["message"] == "container x is not valid for pod p"
