"""Quotas at the door: what is refused, what is counted, and when room is free again."""

from __future__ import annotations

from typing import Any

from tests.contracts.client import Answer, eventually
from tests.contracts.space import Space, plain


def quota(space: Space, name: str = "q", **hard: Any) -> None:
    """A quota that is in force."""
    limits = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    create(space, name, {"hard": limits})


def create(space: Space, name: str, spec: dict[str, Any]) -> None:
    space.post("resourcequotas", {"metadata": {"name": name}, "spec": spec}).must(201)
    eventually(lambda: "used" in space.get(f"resourcequotas/{name}").must(200).get("status", {}))


def pod(space: Space, name: str, resources: dict[str, Any] | None = None, **query: Any) -> Answer:
    container = {"name": "c", "image": "i", "resources": resources or {}}
    body = {"metadata": {"name": name}, "spec": plain(containers=[container])}
    return space.post("pods", body, **query)


def used(space: Space, name: str = "q") -> Any:
    return space.get(f"resourcequotas/{name}").must(200)["status"]["used"]


def test_a_pod_too_many_is_refused(space: Space) -> None:
    quota(space, pods=1)
    pod(space, "a").must(201)
    assert used(space) == {"pods": "1"}
    answer = pod(space, "b")
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    assert answer.json["details"] == {"name": "b", "kind": "pods"}


def test_what_a_pod_asks_for_is_counted(space: Space) -> None:
    quota(space, requests_cpu=2, limits_memory="3Gi")
    pod(space, "a", {"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "memory": "1Gi"}}).must(201)
    pod(space, "b", {"limits": {"cpu": 1, "memory": "1Gi"}}).must(201)
    assert used(space) == {"requests.cpu": "1500m", "limits.memory": "2Gi"}
    answer = pod(space, "c", {"limits": {"cpu": 1, "memory": "1500Mi"}})
    assert answer.message == (
        'pods "c" is forbidden: exceeded quota: q, requested: limits.memory=1500Mi,requests.cpu=1, '
        "used: limits.memory=2Gi,requests.cpu=1500m, limited: limits.memory=3Gi,requests.cpu=2"
    )


def test_what_is_limited_must_be_said(space: Space) -> None:
    quota(space, requests_cpu=2, requests_memory="1Gi")
    answer = pod(space, "a")
    assert answer.code == 403
    assert answer.message == (
        'pods "a" is forbidden: failed quota: q: must specify requests.cpu for: c; requests.memory for: c'
    )


def test_shares_of_cards_are_counted(space: Space) -> None:
    create(space, "q", {"hard": {"requests.volcano.sh/gpu-memory": 3000}})
    pod(space, "none").must(201)
    pod(space, "a", {"limits": {"volcano.sh/gpu-memory": 2000}}).must(201)
    answer = pod(space, "b", {"limits": {"volcano.sh/gpu-memory": 1001}})
    assert answer.message == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.volcano.sh/gpu-memory=1001, '
        "used: requests.volcano.sh/gpu-memory=2k, limited: requests.volcano.sh/gpu-memory=3k"
    )


def test_a_table_shows_what_is_used(space: Space) -> None:
    quota(space, pods=3, requests_cpu=2, limits_memory="1Gi")
    pod(space, "a", {"limits": {"cpu": "500m", "memory": "64Mi"}}).must(201)
    table = space.table("resourcequotas/q").must(200)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Request", "Limit", "Age"]
    assert table["rows"][0]["cells"][:3] == ["q", "pods: 1/3, requests.cpu: 500m/2", "limits.memory: 64Mi/1Gi"]


def test_several_quotas_must_all_have_room(space: Space) -> None:
    quota(space, "first", pods=5)
    quota(space, "second", pods=0)
    answer = pod(space, "a")
    assert answer.message == (
        'pods "a" is forbidden: exceeded quota: second, requested: pods=1, used: pods=0, limited: pods=0'
    )
    assert used(space, "first") == {"pods": "0"}


def test_a_deleted_pod_leaves_room(space: Space) -> None:
    quota(space, pods=1)
    pod(space, "a").must(201)
    space.delete("pods/a").must(200)
    eventually(lambda: pod(space, "b").code == 201)


def test_a_finished_pod_leaves_room(space: Space) -> None:
    quota(space, pods=1)
    pod(space, "a").must(201)
    space.merge("pods/a/status", {"status": {"phase": "Succeeded"}}).must(200)
    eventually(lambda: pod(space, "b").code == 201)


def test_a_dry_run_is_refused_but_not_counted(space: Space) -> None:
    quota(space, pods=1)
    pod(space, "a", dryRun="All").must(201)
    assert used(space) == {"pods": "0"}
    pod(space, "a").must(201)
    assert pod(space, "b", dryRun="All").code == 403


def test_other_kinds_are_counted_too(space: Space) -> None:
    quota(space, count__configmaps=1, services=1, secrets=1)
    space.post("configmaps", {"metadata": {"name": "a"}}).must(201)
    space.post("services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}).must(201)
    space.post("secrets", {"metadata": {"name": "a"}}).must(201)
    messages = [
        space.post("configmaps", {"metadata": {"name": "b"}}).message,
        space.post("services", {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}}).message,
        space.post("secrets", {"metadata": {"name": "b"}}).message,
    ]
    assert messages == [
        'configmaps "b" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, '
        "limited: count/configmaps=1",
        'services "b" is forbidden: exceeded quota: q, requested: services=1, used: services=1, limited: services=1',
        'secrets "b" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1',
    ]


def test_a_quota_of_pods_that_ask_for_nothing(space: Space) -> None:
    create(space, "q", {"hard": {"pods": 0}, "scopes": ["BestEffort"]})
    assert pod(space, "a").code == 403
    pod(space, "b", {"requests": {"cpu": 1}}).must(201)


def test_a_quota_of_a_priority(space: Space) -> None:
    space.post("priorityclasses", {"metadata": {"name": f"{space}-high"}, "value": 5}).must(201)
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [f"{space}-high"]}
    create(space, "q", {"hard": {"pods": 0}, "scopeSelector": {"matchExpressions": [scope]}})
    pod(space, "a").must(201)
    high = {"metadata": {"name": "b"}, "spec": plain(priorityClassName=f"{space}-high")}
    assert space.post("pods", high).code == 403


def test_a_quota_cannot_be_passed_by_an_init_container(space: Space) -> None:
    quota(space, requests_cpu=1)
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]
    first = [{"name": "i", "image": "i", "resources": {"requests": {"cpu": 2}}}]
    body = {"metadata": {"name": "a"}, "spec": plain(containers=containers, initContainers=first)}
    answer = space.post("pods", body)
    assert answer.message == (
        'pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, '
        "limited: requests.cpu=1"
    )
