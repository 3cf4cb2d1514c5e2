"""What becomes of Deployments, ReplicaSets, DaemonSets and Jobs.  The tests are the scheduler and the kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contracts import servers
from tests.contracts.client import Client, eventually
from tests.contracts.space import Space, plain

HASH = "pod-template-hash"
NEVER = "2026-01-01T00:00:00Z"
TRACKED = "batch.kubernetes.io/job-tracking"


@pytest.fixture(scope="module")
def client(server: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Speaks to a server on which somebody runs workloads."""
    if server == "embedded":
        with servers.embedded(workloads=True) as found:
            yield found
        return
    cluster = request.getfixturevalue("cluster")
    cluster.start("workloads")
    with servers.real(cluster.certificate) as found:
        yield found
    cluster.stop("workloads")


def workload(name: str, app: str = "x", *, pod: Any = None, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": app}}, "spec": plain(**(pod or {}))}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, "template": template, **spec},
    }


def job(name: str, *, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": plain(restartPolicy=policy)}, **spec}}


def pods(space: Space, app: str = "x") -> list[Any]:
    """The pods that are there to stay."""
    found = space.get("pods", labelSelector=f"app={app}").must(200)["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def wait_for_pods(space: Space, count: int, app: str = "x") -> list[Any]:
    return list(eventually(lambda: (found := pods(space, app)) and len(found) == count and found))


def set_phase(space: Space, pod: Any, phase: str) -> None:
    """Let a pod be what a kubelet would say; it may be gone by now."""
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "lastTransitionTime": NEVER}
    path = f"pods/{pod['metadata']['name']}/status"
    answer = space.send("STRATEGIC", path, {"status": {"phase": phase, "conditions": [ready]}})
    assert answer.code in (200, 404), answer.body


def run_all(space: Space, app: str = "x") -> None:
    for pod in pods(space, app):
        if pod["status"]["phase"] == "Pending":
            set_phase(space, pod, "Running")


def set_image(space: Space, what: str, image: str, **spec: Any) -> None:
    """Change a template, and perhaps more."""
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    space.send("STRATEGIC", what, {"spec": {**spec, "template": template}}).must(200)


def image_of(object: Any) -> str:
    return str(object["spec"]["containers"][0]["image"])


def revision(object: Any) -> str:
    return str(object["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def status(space: Space, what: str) -> dict[str, Any]:
    """The status without times and words."""
    found: dict[str, Any] = space.get(what).must(200)["status"]
    conditions = found.pop("conditions", [])
    known = {key: value for key, value in found.items() if not key.endswith("Time") and key != "observedGeneration"}
    told = {each["type"]: (each["status"], each["reason"]) for each in conditions}
    return {**known, **({"conditions": told} if told else {})}


def owner(object: Any) -> tuple[str, str]:
    (reference,) = object["metadata"]["ownerReferences"]
    assert reference["controller"] is reference["blockOwnerDeletion"] is True
    return reference["kind"], reference["name"]


# Deployments


def test_a_deployment_has_pods_by_way_of_a_replica_set(space: Space) -> None:
    space.post("deployments", workload("web", replicas=2)).must(201)
    wait_for_pods(space, 2)
    (replicas,) = space.get("replicasets").must(200)["items"]
    mark = replicas["metadata"]["labels"][HASH]
    assert replicas["metadata"]["name"] == f"web-{mark}"
    assert owner(replicas) == ("Deployment", "web")
    assert replicas["metadata"]["annotations"] == {
        "deployment.kubernetes.io/revision": "1",
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
    }
    assert replicas["spec"]["selector"] == {"matchLabels": {"app": "x", HASH: mark}}
    for pod in pods(space):
        assert owner(pod) == ("ReplicaSet", f"web-{mark}")
        assert pod["metadata"]["labels"] == {"app": "x", HASH: mark}
        assert pod["metadata"]["generateName"] == f"web-{mark}-"
    waiting = {"Available": ("False", "MinimumReplicasUnavailable"), "Progressing": ("True", "ReplicaSetUpdated")}
    eventually(lambda: status(space, "deployments/web").get("conditions") == waiting)
    run_all(space)
    done = {"Available": ("True", "MinimumReplicasAvailable"), "Progressing": ("True", "NewReplicaSetAvailable")}
    counts = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "terminatingReplicas": 0}
    eventually(lambda: status(space, "deployments/web") == {**counts, "conditions": done})
    counts = {**counts, "fullyLabeledReplicas": 2}
    del counts["updatedReplicas"]
    assert status(space, f"replicasets/web-{mark}") == counts
    assert revision(space.get("deployments/web").must(200)) == "1"


def test_a_deployment_grows_and_shrinks(space: Space) -> None:
    space.post("deployments", workload("web")).must(201)
    wait_for_pods(space, 1)
    space.merge("deployments/web/scale", {"spec": {"replicas": 4}}).must(200)
    wait_for_pods(space, 4)
    run_all(space)
    space.merge("deployments/web/scale", {"spec": {"replicas": 1}}).must(200)
    wait_for_pods(space, 1)
    assert pods(space)[0]["status"]["phase"] == "Running"


def test_a_changed_template_replaces_the_pods_bit_by_bit(space: Space) -> None:
    rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    space.post("deployments", workload("web", replicas=2, strategy=rolling)).must(201)
    wait_for_pods(space, 2)
    run_all(space)
    old = {pod["metadata"]["name"] for pod in pods(space)}
    eventually(lambda: status(space, "deployments/web").get("availableReplicas") == 2)
    set_image(space, "deployments/web", "other")
    wait_for_pods(space, 3)  # one more, and nobody goes before it works

    def replaced() -> bool:
        run_all(space)
        now = pods(space)
        assert len(now) <= 3
        assert sum(pod["status"]["phase"] == "Running" for pod in now) >= 2
        return len(now) == 2 and not old & {pod["metadata"]["name"] for pod in now}

    eventually(replaced)
    sets = {image_of(each["spec"]["template"]): each for each in space.get("replicasets").must(200)["items"]}
    assert (sets["i"]["spec"]["replicas"], sets["other"]["spec"]["replicas"]) == (0, 2)
    assert (revision(sets["i"]), revision(sets["other"])) == ("1", "2")
    set_image(space, "deployments/web", "i")
    eventually(lambda: space.get(f"replicasets/{sets['i']['metadata']['name']}").json["spec"]["replicas"])
    assert len(space.names("replicasets")) == 2  # the old one is taken again
    eventually(lambda: revision(space.get("deployments/web").must(200)) == "3")


def test_where_pods_are_recreated_all_old_ones_end_first(space: Space) -> None:
    space.post("deployments", workload("web", replicas=2, strategy={"type": "Recreate"})).must(201)
    held = wait_for_pods(space, 2)[0]["metadata"]["name"]
    run_all(space)
    space.merge(f"pods/{held}", {"metadata": {"finalizers": ["contracts.example/held"]}}).must(200)
    set_image(space, "deployments/web", "other")
    eventually(lambda: "deletionTimestamp" in space.get(f"pods/{held}").json["metadata"])
    assert space.names("pods") == [held]
    space.merge(f"pods/{held}", {"metadata": {"finalizers": None}}).must(200)
    wait_for_pods(space, 2)


def test_a_paused_deployment_replaces_nothing(space: Space) -> None:
    space.post("deployments", workload("web")).must(201)
    wait_for_pods(space, 1)
    set_image(space, "deployments/web", "other", paused=True, replicas=2)
    assert [image_of(pod) for pod in wait_for_pods(space, 2)] == ["i", "i"]
    eventually(lambda: status(space, "deployments/web")["conditions"]["Progressing"] == ("Unknown", "DeploymentPaused"))
    space.merge("deployments/web", {"spec": {"paused": None}}).must(200)

    def images_now() -> set[str]:
        run_all(space)
        return {image_of(pod) for pod in pods(space)}

    eventually(lambda: images_now() == {"other"})


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
def test_a_deployment_takes_its_pods_along(space: Space, policy: str) -> None:
    space.post("deployments", workload("web", replicas=2)).must(201)
    wait_for_pods(space, 2)
    space.delete("deployments/web", propagationPolicy=policy).must(200)
    eventually(lambda: space.gone("deployments/web") and not space.names("replicasets") and not space.names("pods"))


def test_orphans_are_taken_over_by_the_next_deployment_of_that_kind(space: Space) -> None:
    space.post("deployments", workload("web", replicas=2)).must(201)
    before = {pod["metadata"]["uid"] for pod in wait_for_pods(space, 2)}
    space.delete("deployments/web", propagationPolicy="Orphan").must(200)
    eventually(lambda: space.gone("deployments/web"))
    (replicas,) = space.get("replicasets").must(200)["items"]
    assert "ownerReferences" not in replicas["metadata"]
    space.post("deployments", workload("web", replicas=2)).must(201)
    eventually(lambda: "ownerReferences" in space.get("replicasets").json["items"][0]["metadata"])
    assert {pod["metadata"]["uid"] for pod in pods(space)} == before


def test_a_deployment_says_why_it_has_no_pods(space: Space) -> None:
    space.post("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}).must(201)
    eventually(lambda: space.get("resourcequotas/none").json.get("status", {}).get("used"))
    space.post("deployments", workload("web")).must(201)
    eventually(
        lambda: status(space, "deployments/web").get("conditions", {}).get("ReplicaFailure") == ("True", "FailedCreate")
    )
    events = space.get("events", fieldSelector="reason=FailedCreate").must(200)["items"]
    assert "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0" in events[0]["message"]


# ReplicaSets


def test_pods_that_go_or_fail_are_replaced(space: Space) -> None:
    space.post("replicasets", workload("web", replicas=2)).must(201)
    one, two = (pod["metadata"]["name"] for pod in wait_for_pods(space, 2))
    space.delete(f"pods/{one}").must(200)
    eventually(lambda: one not in space.names("pods") and len(pods(space)) == 2)
    set_phase(space, {"metadata": {"name": two}}, "Failed")
    eventually(lambda: sum(pod["status"]["phase"] == "Pending" for pod in pods(space)) == 2)
    eventually(lambda: status(space, "replicasets/web")["replicas"] == 2)


def test_orphans_that_fit_are_adopted_and_who_fits_no_more_is_let_go(space: Space) -> None:
    made = space.post("pods", {"metadata": {"name": "early", "labels": {"app": "x"}}, "spec": plain()}).must(201)
    space.post("pods", {"metadata": {"name": "strange", "labels": {"app": "y"}}, "spec": plain()}).must(201)
    space.post("replicasets", workload("web", replicas=2)).must(201)
    assert made["metadata"]["uid"] in [pod["metadata"]["uid"] for pod in wait_for_pods(space, 2)]
    eventually(lambda: space.get("pods/early").json["metadata"].get("ownerReferences"))
    assert "ownerReferences" not in space.get("pods/strange").must(200)["metadata"]
    space.merge("pods/early", {"metadata": {"labels": {"app": "z"}}}).must(200)
    eventually(lambda: "ownerReferences" not in space.get("pods/early").json["metadata"])
    wait_for_pods(space, 2)
    late = {"metadata": {"name": "late", "labels": {"app": "x"}}, "spec": plain()}
    space.post("pods", late).must(201)  # one too many: the youngest goes
    eventually(lambda: len(pods(space)) == 2)


# DaemonSets


def make_node(space: Space, name: str, **labels: str) -> str:
    """A node that takes pods; its name."""
    name = f"{space}-{name}"
    space.post("nodes", {"metadata": {"name": name, "labels": {"space": space.name, **labels}}}).must(201)
    space.merge(f"nodes/{name}", {"spec": {"taints": None}}).must(200)
    return name


def daemon_set(space: Space, **spec: Any) -> dict[str, Any]:
    return workload("agent", pod={"nodeSelector": {"space": space.name}}, **spec)


def nodes_of(found: list[Any]) -> list[str]:
    """The nodes that pods wait for."""
    wanted = []
    for pod in found:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ((line,),) = (each["matchFields"] for each in affinity["nodeSelectorTerms"])
        assert (line["key"], line["operator"]) == ("metadata.name", "In")
        wanted += line["values"]
    return sorted(wanted)


def bind(space: Space, pod: Any) -> None:
    """Bring a pod to the node that it waits for."""
    name, target = pod["metadata"]["name"], {"apiVersion": "v1", "kind": "Node", "name": nodes_of([pod])[0]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    space.post(f"pods/{name}/binding", binding).must(201)


def test_a_daemon_set_has_a_pod_for_each_node(space: Space) -> None:
    one, two = make_node(space, "one"), make_node(space, "two")
    space.post("daemonsets", daemon_set(space)).must(201)
    assert nodes_of(wait_for_pods(space, 2)) == [one, two]
    (pod, _) = pods(space)
    assert owner(pod) == ("DaemonSet", "agent")
    assert pod["metadata"]["labels"].keys() == {"app", "controller-revision-hash", "pod-template-generation"}
    assert {each["key"].removeprefix("node.kubernetes.io/"): each["effect"] for each in pod["spec"]["tolerations"]} == {
        "not-ready": "NoExecute",
        "unreachable": "NoExecute",
        "disk-pressure": "NoSchedule",
        "memory-pressure": "NoSchedule",
        "pid-pressure": "NoSchedule",
        "unschedulable": "NoSchedule",
    }
    three = make_node(space, "three")
    assert nodes_of(wait_for_pods(space, 3)) == sorted([one, two, three])
    for pod in pods(space):
        bind(space, pod)
    run_all(space)
    counts = {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 3, "numberAvailable": 3}
    wanted = {**counts, "updatedNumberScheduled": 3, "numberMisscheduled": 0}
    eventually(lambda: status(space, "daemonsets/agent") == wanted)
    space.merge(f"nodes/{two}", {"metadata": {"labels": {"space": None}}}).must(200)
    eventually(lambda: nodes_of(pods(space)) == sorted([one, three]))
    (gone, _) = pods(space)
    space.delete(f"pods/{gone['metadata']['name']}", gracePeriodSeconds=0).must(200)
    eventually(lambda: nodes_of(pods(space)) == sorted([one, three]))


def test_a_daemon_set_spares_nodes_whose_taints_it_does_not_tolerate(space: Space) -> None:
    one, two = make_node(space, "one"), make_node(space, "two")
    taint = {"key": "example.com/special", "effect": "NoSchedule"}
    space.merge(f"nodes/{two}", {"spec": {"taints": [taint]}}).must(200)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    space.merge(f"nodes/{one}", {"spec": {"unschedulable": True, "taints": [cordon]}}).must(200)
    space.post("daemonsets", daemon_set(space)).must(201)
    assert nodes_of(wait_for_pods(space, 1)) == [one]
    space.merge(f"nodes/{two}", {"spec": {"taints": None}}).must(200)
    for pod in wait_for_pods(space, 2):
        bind(space, pod)
    space.merge(f"nodes/{two}", {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}}).must(200)
    eventually(lambda: nodes_of(pods(space)) == [one])


def test_a_changed_daemon_set_replaces_its_pods(space: Space) -> None:
    make_node(space, "one"), make_node(space, "two")
    space.post("daemonsets", daemon_set(space)).must(201)
    wait_for_pods(space, 2)
    run_all(space)
    eventually(lambda: status(space, "daemonsets/agent").get("numberAvailable") == 2)
    set_image(space, "daemonsets/agent", "other")

    def replaced() -> bool:
        found = pods(space)
        assert len(found) <= 2
        run_all(space)
        return [image_of(pod) for pod in found] == ["other", "other"]

    eventually(replaced)
    eventually(lambda: status(space, "daemonsets/agent").get("updatedNumberScheduled") == 2)
    assert {pod["metadata"]["labels"]["pod-template-generation"] for pod in pods(space)} == {"2"}


# Jobs


def of_job(space: Space, name: str, *phases: str) -> list[Any]:
    found = space.get("pods", labelSelector=f"batch.kubernetes.io/job-name={name}").must(200)["items"]
    return [each for each in found if not phases or each["status"]["phase"] in phases]


def wait_for_job_pods(space: Space, name: str, count: int) -> list[Any]:
    return list(eventually(lambda: len(found := of_job(space, name, "Pending")) == count and found))


COMPLETE = dict.fromkeys(("SuccessCriteriaMet", "Complete"), ("True", "CompletionsReached"))


def test_a_job_ends_when_enough_pods_have_ended_well(space: Space) -> None:
    space.post("jobs", job("work", completions=3, parallelism=2)).must(201)
    one, two = wait_for_job_pods(space, "work", 2)
    assert owner(one) == ("Job", "work")
    assert one["metadata"]["finalizers"] == [TRACKED]
    running = {"active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
    eventually(lambda: status(space, "jobs/work") == running)
    set_phase(space, one, "Succeeded")
    set_phase(space, two, "Succeeded")
    (three,) = wait_for_job_pods(space, "work", 1)
    set_phase(space, three, "Succeeded")
    done = {"succeeded": 3, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "conditions": COMPLETE}
    eventually(lambda: status(space, "jobs/work") == done)
    assert len(of_job(space, "work", "Succeeded")) == 3
    assert not any("finalizers" in pod["metadata"] for pod in of_job(space, "work"))
    assert space.get("jobs/work").must(200)["status"]["completionTime"]


def test_a_job_without_completions_ends_with_its_last_worker(space: Space) -> None:
    space.post("jobs", job("queue", parallelism=2)).must(201)
    one, two = wait_for_job_pods(space, "queue", 2)
    set_phase(space, one, "Succeeded")
    eventually(lambda: status(space, "jobs/queue").get("succeeded") == 1)
    assert len(of_job(space, "queue")) == 2
    set_phase(space, two, "Succeeded")
    eventually(lambda: status(space, "jobs/queue").get("conditions") == COMPLETE)


def test_a_job_fails_with_one_failure_too_many(space: Space) -> None:
    space.post("jobs", job("work", parallelism=2, completions=2, backoffLimit=0)).must(201)
    one, two = wait_for_job_pods(space, "work", 2)
    set_phase(space, two, "Running")
    set_phase(space, one, "Failed")
    failed = dict.fromkeys(("FailureTarget", "Failed"), ("True", "BackoffLimitExceeded"))
    wanted = {"failed": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "conditions": failed}
    eventually(lambda: status(space, "jobs/work") == wanted)
    assert [pod["metadata"]["name"] for pod in of_job(space, "work")] == [one["metadata"]["name"]]


def test_a_job_that_is_too_slow_fails(space: Space) -> None:
    space.post("jobs", job("slow", activeDeadlineSeconds=1)).must(201)
    failed = dict.fromkeys(("FailureTarget", "Failed"), ("True", "DeadlineExceeded"))
    eventually(lambda: status(space, "jobs/slow").get("conditions") == failed)
    assert of_job(space, "slow") == []


def test_a_pod_of_a_job_that_is_deleted_counts_as_failed_and_is_replaced(space: Space) -> None:
    space.post("jobs", job("work")).must(201)
    (one,) = wait_for_job_pods(space, "work", 1)
    set_phase(space, one, "Running")
    space.delete(f"pods/{one['metadata']['name']}").must(200)
    eventually(lambda: status(space, "jobs/work").get("failed") == 1)
    (two,) = wait_for_job_pods(space, "work", 1)
    assert two["metadata"]["uid"] != one["metadata"]["uid"]


def test_a_finished_job_is_forgotten_if_its_author_says_so(space: Space) -> None:
    space.post("jobs", job("short", ttlSecondsAfterFinished=0)).must(201)
    set_phase(space, wait_for_job_pods(space, "short", 1)[0], "Succeeded")
    eventually(lambda: space.gone("jobs/short") and not of_job(space, "short"))


def test_pods_of_a_deleted_job_stay_unless_they_are_to_go_too(space: Space) -> None:
    for name in ("kept", "gone"):
        space.post("jobs", job(name)).must(201)
        wait_for_job_pods(space, name, 1)
    space.delete("jobs/kept").must(200)
    space.delete("jobs/gone", propagationPolicy="Background").must(200)
    eventually(lambda: space.gone("jobs/kept") and not of_job(space, "gone"))
    eventually(lambda: ["finalizers" in pod["metadata"] for pod in of_job(space, "kept")] == [False])
