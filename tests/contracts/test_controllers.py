"""What a cluster does by itself after a write: accounts, namespaces, owners and what they own, quotas."""

from __future__ import annotations

from typing import Any

from tests.contracts.client import eventually
from tests.contracts.space import Space, plain

HELD = ["contracts.example/held"]


def config_map(space: Space, name: str, *owners: Any, block: bool = False, **metadata: Any) -> Any:
    """A ConfigMap with owners."""
    references = [reference(each, block=block) for each in owners]
    return space.post("configmaps", {"metadata": {"name": name, "ownerReferences": references, **metadata}}).must(201)


def reference(owner: Any, *, block: bool = False) -> dict[str, Any]:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {**named, "uid": owner["metadata"]["uid"], **({"blockOwnerDeletion": True} if block else {})}


def owners_of(space: Space, what: str) -> list[str]:
    found = space.get(what).must(200)["metadata"].get("ownerReferences", [])
    return [each["name"] for each in found]


def is_going(space: Space, what: str) -> bool:
    return "deletionTimestamp" in space.get(what).must(200)["metadata"]


def let_go(space: Space, what: str) -> None:
    """Take the finalizers off an object."""
    space.merge(what, {"metadata": {"finalizers": None}}).must(200)


# Service accounts


def test_a_default_account_that_is_deleted_comes_back(space: Space) -> None:
    before = space.get("serviceaccounts/default").must(200)["metadata"]["uid"]
    space.delete("serviceaccounts/default").must(200)
    eventually(lambda: not space.gone("serviceaccounts/default"))
    assert space.get("serviceaccounts/default").must(200)["metadata"]["uid"] != before


# Namespaces


def test_a_namespace_goes_with_all_that_is_in_it(space: Space) -> None:
    space.post("configmaps", {"metadata": {"name": "a"}}).must(201)
    space.post("podgroups", {"metadata": {"name": "a"}, "spec": {"minMember": 1}}).must(201)
    space.pod("a")
    answer = space.delete(f"namespaces/{space}").must(200)
    assert answer["status"]["phase"] == "Terminating"
    assert answer["spec"]["finalizers"] == ["kubernetes"]
    eventually(lambda: space.gone(f"namespaces/{space}"))
    for kind in ("configmaps", "podgroups", "pods", "serviceaccounts"):
        assert space.names(kind) == []


def test_a_namespace_waits_for_what_is_held_in_it(space: Space) -> None:
    config_map(space, "held", finalizers=HELD)
    config_map(space, "free")
    space.delete(f"namespaces/{space}").must(200)
    eventually(lambda: is_going(space, "configmaps/held"))
    eventually(lambda: space.gone("configmaps/free"))
    assert space.get(f"namespaces/{space}").must(200)["status"]["phase"] == "Terminating"
    let_go(space, "configmaps/held")
    eventually(lambda: space.gone(f"namespaces/{space}"))


def test_a_namespace_that_is_going_says_what_it_waits_for(space: Space) -> None:
    config_map(space, "held", finalizers=HELD)
    config_map(space, "too", finalizers=HELD)
    space.delete(f"namespaces/{space}").must(200)
    conditions = {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in eventually(lambda: space.get(f"namespaces/{space}").must(200)["status"].get("conditions"))
    }
    assert conditions == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False", "ParsedGroupVersions", "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 2 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True", "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: contracts.example/held in 2 resource instances",
        ),
    }  # fmt: skip
    let_go(space, "configmaps/held")
    let_go(space, "configmaps/too")
    eventually(lambda: space.gone(f"namespaces/{space}"))


def test_a_namespace_waits_for_pods_that_are_given_time(space: Space) -> None:
    space.pod("a", node=True, terminationGracePeriodSeconds=60)
    space.delete(f"namespaces/{space}").must(200)
    eventually(lambda: is_going(space, "pods/a"))
    assert space.get(f"namespaces/{space}").must(200)["status"]["phase"] == "Terminating"
    space.delete("pods/a", gracePeriodSeconds=0).must(200)
    eventually(lambda: space.gone(f"namespaces/{space}"))


def test_nothing_new_comes_into_a_namespace_that_is_going(space: Space) -> None:
    config_map(space, "held", finalizers=HELD)
    space.delete(f"namespaces/{space}").must(200)
    eventually(lambda: space.gone("serviceaccounts/default"))
    answer = space.post("configmaps", {"metadata": {"name": "late"}})
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert f"unable to create new content in namespace {space} because it is being terminated" in answer.message
    let_go(space, "configmaps/held")
    eventually(lambda: space.gone(f"namespaces/{space}"))


# Owners


def test_what_is_owned_goes_after_its_owner(space: Space) -> None:
    owner = config_map(space, "owner")
    middle = config_map(space, "middle", owner)
    config_map(space, "last", middle)
    space.delete("configmaps/owner").must(200)
    eventually(lambda: space.gone("configmaps/middle") and space.gone("configmaps/last"))


def test_what_has_another_owner_stays_and_forgets_the_one_that_is_gone(space: Space) -> None:
    one, two = config_map(space, "one"), config_map(space, "two")
    config_map(space, "owned", one, two)
    space.delete("configmaps/one").must(200)
    eventually(lambda: owners_of(space, "configmaps/owned") == ["two"])


def test_an_owner_of_another_kind_counts_too(space: Space) -> None:
    pod = space.pod("owner")
    group = {"metadata": {"name": "owned", "ownerReferences": [reference(pod)]}, "spec": {"minMember": 1}}
    space.post("podgroups", group).must(201)
    space.delete("pods/owner").must(200)
    eventually(lambda: space.gone("podgroups/owned"))


def test_a_node_owns_what_is_in_namespaces(space: Space) -> None:
    node = space.post("nodes", {"metadata": {"name": f"{space}-owner"}}).must(201)
    config_map(space, "owned", node)
    space.delete(f"nodes/{space}-owner").must(200)
    eventually(lambda: space.gone("configmaps/owned"))


def test_who_names_an_owner_that_never_was_goes(space: Space) -> None:
    owner = config_map(space, "owner")
    owner["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    config_map(space, "owned", owner)
    eventually(lambda: space.gone("configmaps/owned"))
    assert not space.gone("configmaps/owner")


def test_orphans_are_let_go_before_their_owner_goes(space: Space) -> None:
    one, two = config_map(space, "one"), config_map(space, "two")
    config_map(space, "owned", one, two)
    config_map(space, "only", one)
    space.delete("configmaps/one", propagationPolicy="Orphan").must(200)
    eventually(lambda: space.gone("configmaps/one"))
    assert owners_of(space, "configmaps/owned") == ["two"]
    assert owners_of(space, "configmaps/only") == []


def test_in_the_foreground_an_owner_waits_for_those_who_block_it(space: Space) -> None:
    owner = config_map(space, "owner")
    config_map(space, "blocking", owner, block=True, finalizers=HELD)
    config_map(space, "other", owner, finalizers=HELD)
    answer = space.delete("configmaps/owner", propagationPolicy="Foreground").must(200)
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: is_going(space, "configmaps/blocking") and is_going(space, "configmaps/other"))
    assert space.get("configmaps/owner").must(200)["metadata"]["finalizers"] == ["foregroundDeletion"]
    let_go(space, "configmaps/blocking")
    eventually(lambda: space.gone("configmaps/owner"))
    assert not space.gone("configmaps/other")
    let_go(space, "configmaps/other")


def test_in_the_foreground_an_owner_of_nothing_goes(space: Space) -> None:
    config_map(space, "owner")
    space.delete("configmaps/owner", propagationPolicy="Foreground").must(200)
    eventually(lambda: space.gone("configmaps/owner"))


def test_the_foreground_reaches_those_further_down(space: Space) -> None:
    owner = config_map(space, "owner")
    middle = config_map(space, "middle", owner, block=True)
    config_map(space, "last", middle, block=True, finalizers=HELD)
    space.delete("configmaps/owner", propagationPolicy="Foreground").must(200)
    eventually(lambda: is_going(space, "configmaps/last"))
    assert space.get("configmaps/middle").must(200)["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert not space.gone("configmaps/owner")
    let_go(space, "configmaps/last")
    eventually(lambda: space.gone("configmaps/owner"))


def test_what_has_another_owner_is_let_go_in_the_foreground(space: Space) -> None:
    one, two = config_map(space, "one"), config_map(space, "two")
    config_map(space, "owned", one, two, block=True)
    space.delete("configmaps/one", propagationPolicy="Foreground").must(200)
    eventually(lambda: space.gone("configmaps/one"))
    assert owners_of(space, "configmaps/owned") == ["two"]


# Quotas


def test_the_status_of_a_quota_says_what_is_used(space: Space) -> None:
    hard = {"pods": "3", "requests.cpu": "2", "requests.nvidia.com/gpu": "4", "count/configmaps": "10"}
    space.post("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}).must(201)

    def used() -> Any:
        return space.get("resourcequotas/q").must(200).get("status", {}).get("used", {})

    assert eventually(used).keys() == hard.keys()
    at_first = int(used()["count/configmaps"])
    resources = {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "2"}}
    container = {"name": "c", "image": "i", "resources": resources}
    space.post("pods", {"metadata": {"name": "a"}, "spec": plain(containers=[container])}).must(201)
    config_map(space, "a")
    wanted = {
        "pods": "1",
        "requests.cpu": "500m",
        "requests.nvidia.com/gpu": "2",
        "count/configmaps": str(at_first + 1),
    }
    eventually(lambda: used() == wanted)
    assert space.get("resourcequotas/q").must(200)["status"]["hard"] == hard
    space.delete("pods/a").must(200)
    eventually(lambda: used()["pods"] == "0" and used()["requests.cpu"] == "0")


def test_a_quota_that_is_changed_counts_anew(space: Space) -> None:
    space.post("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}}).must(201)
    space.merge("resourcequotas/q", {"spec": {"hard": {"pods": "5", "services": "1"}}}).must(200)
    wanted = {"hard": {"pods": "5", "services": "1"}, "used": {"pods": "0", "services": "0"}}
    eventually(lambda: space.get("resourcequotas/q").must(200).get("status") == wanted)
