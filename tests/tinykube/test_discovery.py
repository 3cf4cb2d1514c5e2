"""Which kind people mean by what they type; both ways in which servers list their kinds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import virtual
from tests.tinykube.scripted import answer
from tinykube.client import Client
from tinykube.discovery import Discovery, UnknownKind
from tinykube.transport import Request, Response

KINDS = [
    # group, version, plural, singular, kind, namespaced, short names, categories
    ("", "v1", "events", "event", "Event", True, ["ev"], []),
    ("", "v1", "pods", "pod", "Pod", True, ["po"], ["all"]),
    ("", "v1", "nodes", "node", "Node", False, ["no"], []),
    ("apps", "v1", "deployments", "deployment", "Deployment", True, ["deploy"], ["all"]),
    ("apps", "v1beta1", "deployments", "deployment", "Deployment", True, ["deploy"], ["all"]),
    ("events.k8s.io", "v1", "events", "event", "Event", True, ["ev"], []),
    ("scheduling.volcano.sh", "v1beta1", "podgroups", "podgroup", "PodGroup", True, ["pg"], []),
    ("metrics.k8s.io", "v1beta1", "pods", "", "PodMetrics", True, [], []),
]


class Server:
    """Tells its kinds at once, or group by group as older servers do."""

    def __init__(self, aggregated: bool) -> None:
        self.aggregated = aggregated

    async def send(self, request: Request) -> Response:
        groups = list(dict.fromkeys(kind[0] for kind in KINDS))
        wanted = [group for group in groups if (group == "") == (request.path == "/api")]
        if self.aggregated:
            assert "as=APIGroupDiscoveryList" in request.headers["accept"]
            return answer({"kind": "APIGroupDiscoveryList", "items": [self._group(group) for group in wanted]})
        if request.path == "/api":
            return answer({"kind": "APIVersions", "versions": ["v1"]})
        if request.path == "/apis":
            return answer({"kind": "APIGroupList", "groups": [self._old_group(group) for group in wanted]})
        *_, group, version = ("", *request.path.removeprefix("/api").removeprefix("s").strip("/").split("/"))
        return answer({"kind": "APIResourceList", "resources": self._old_resources(group, version)})

    async def close(self) -> None:
        pass

    def _versions(self, group: str) -> list[str]:
        return list(dict.fromkeys(kind[1] for kind in KINDS if kind[0] == group))

    def _group(self, group: str) -> dict[str, Any]:
        versions = [
            {
                "version": version,
                "resources": [
                    {
                        "resource": plural,
                        "responseKind": {"group": "", "version": "", "kind": kind},
                        "scope": "Namespaced" if namespaced else "Cluster",
                        "singularResource": singular,
                        "verbs": ["get", "list"],
                        "shortNames": short,
                        "categories": categories,
                    }
                    for of, at, plural, singular, kind, namespaced, short, categories in KINDS
                    if (of, at) == (group, version)
                ],
            }
            for version in self._versions(group)
        ]
        return {"metadata": {"name": group}, "versions": versions}

    def _old_group(self, group: str) -> dict[str, Any]:
        versions = [{"groupVersion": f"{group}/{each}", "version": each} for each in self._versions(group)]
        return {"name": group, "versions": versions[::-1], "preferredVersion": versions[0]}

    def _old_resources(self, group: str, version: str) -> list[dict[str, Any]]:
        resources: list[dict[str, Any]] = []
        for of, at, plural, singular, kind, namespaced, short, categories in KINDS:
            if (of, at) == (group, version):
                entry = {"name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind}
                resources.append({**entry, "verbs": ["get"], "shortNames": short, "categories": categories})
                resources.append({**entry, "name": f"{plural}/status", "verbs": ["get"]})
        return resources


@pytest.fixture(scope="module", params=[True, False], ids=["aggregated", "group by group"])
def discovery(request: pytest.FixtureRequest) -> Discovery:
    return virtual.run(Discovery.of(Client(Server(request.param))))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("po", "v1 pods"),
        ("pod", "v1 pods"),
        ("pods", "v1 pods"),
        ("Pod", "v1 pods"),
        ("pods.v1.", "v1 pods"),
        ("pods.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods"),
        ("podmetrics", "metrics.k8s.io/v1beta1 pods"),
        ("events", "v1 events"),
        ("events.events.k8s.io", "events.k8s.io/v1 events"),
        ("deploy", "apps/v1 deployments"),
        ("deploy.apps", "apps/v1 deployments"),
        ("deployments.v1beta1.apps", "apps/v1beta1 deployments"),
        ("podgroups.scheduling.volcano.sh", "scheduling.volcano.sh/v1beta1 podgroups"),
        ("podgroups.v1beta1.scheduling.volcano.sh", "scheduling.volcano.sh/v1beta1 podgroups"),
        ("pg.scheduling", "scheduling.volcano.sh/v1beta1 podgroups"),
    ],
)
def test_what_people_type_is_what_they_mean(discovery: Discovery, text: str, found: str) -> None:
    resource = discovery.find(text).resource
    assert f"{resource.api_version} {resource.plural}" == found


@pytest.mark.parametrize("text", ["jobs", "pods.apps", "deployments.v2.apps", "pods/status"])
def test_a_kind_that_is_not_there_is_named(discovery: Discovery, text: str) -> None:
    with pytest.raises(UnknownKind, match=f'the server doesn\'t have a resource type "{text}"'):
        discovery.find(text)


def test_an_object_says_itself_of_which_kind_it_is(discovery: Discovery) -> None:
    assert discovery.kind("scheduling.volcano.sh/v1beta1", "PodGroup").resource.plural == "podgroups"
    assert discovery.kind("v1", "Node").resource.namespaced is False
    with pytest.raises(UnknownKind, match='no matches for kind "Pod" in version "v2"'):
        discovery.kind("v2", "Pod")


def test_a_category_means_several_kinds(discovery: Discovery) -> None:
    assert {known.resource.plural for known in discovery.category("all")} == {"pods", "deployments"}
