"""Records belong to the scheduler and the agents: who else may not write them, and what he is told."""

from __future__ import annotations

from typing import Any

import pytest

from subak.admission.owned import Owned
from subak.admission.records import LONGEST_SHOWN, Writers, guard
from subak.dialects.interpreter import Interpreter
from tinykube.admission import CREATE, UPDATE, Review
from tinykube.status import ApiError
from tinykube.user import AUTHENTICATED, MASTERS, User

INTERPRETER = Interpreter()
OWNED = Owned.by(INTERPRETER)
SCHEDULER = User("system:serviceaccount:subak-system:scheduler", ("system:serviceaccounts", AUTHENTICATED))
AGENT = User("system:serviceaccount:subak-system:agent", ("agents", AUTHENTICATED))
ADMIN = User("admin", (MASTERS, AUTHENTICATED))
WRITERS = Writers(frozenset({SCHEDULER.name, "agents"}))

CARDS = "hami.io/vgpu-devices-allocated"
HELD = {CARDS: "GPU-0,NVIDIA,3000,0:;", "hami.io/bind-phase": "success", "hami.io/gpu-scheduler-policy": "binpack"}


def pod(annotations: dict[str, str] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "namespace": "team"}
    return {"metadata": metadata if annotations is None else {**metadata, "annotations": annotations}}


def update(old: dict[str, str] | None, new: dict[str, str] | None, user: User = ADMIN, door: str = "") -> Review:
    return Review(UPDATE, "pods", door, "team", user, pod(new), pod(old))


def refusal(review: Review) -> ApiError:
    with pytest.raises(ApiError) as caught:
        guard(OWNED, WRITERS, review)
    return caught.value


@pytest.mark.parametrize("door", ["", "status", "ephemeralcontainers", "resize"])
@pytest.mark.parametrize(
    ("new", "deed"),
    [
        (
            {**HELD, CARDS: "GPU-0,NVIDIA,1,0:;"},
            f'change metadata.annotations[{CARDS}] from "{HELD[CARDS]}" to "GPU-0,',
        ),
        ({}, 'remove metadata.annotations[hami.io/bind-phase], which is "success"'),
        (None, 'remove metadata.annotations[hami.io/bind-phase], which is "success"'),
        ({**HELD, "volcano.sh/gpu-index": ""}, 'set metadata.annotations[volcano.sh/gpu-index] to ""'),
        (
            {**HELD, "iluvatar.ai/predicate-gpu-idx-12": "3"},
            "set metadata.annotations[iluvatar.ai/predicate-gpu-idx-12]",
        ),
        (
            {**HELD, "required-plugins.noderesource.dev": "[]"},
            'set metadata.annotations[required-plugins.noderesource.dev] to "[]"',
        ),
        (
            {**HELD, "required-plugins.noderesource.dev/container.c": "[]"},
            'set metadata.annotations[required-plugins.noderesource.dev/container.c] to "[]"',
        ),
    ],
)
def test_only_writers_change_records(door: str, new: dict[str, str] | None, deed: str) -> None:
    for writer in (SCHEDULER, AGENT):
        guard(OWNED, WRITERS, update(HELD, new, writer, door))
    error = refusal(update(HELD, new, ADMIN, door))
    assert (error.code, error.reason) == (403, "Forbidden")
    begin = f'admission webhook "pods.subak.io" denied the request: pod team/p: user "admin" may not {deed}'
    assert error.message.startswith(begin)
    assert error.message.endswith("leave it as it is; to give its cards back, delete the pod")
    (cause,) = error.details["causes"]
    assert cause["reason"] == "FieldValueForbidden"
    assert cause["field"] in begin


def test_whoever_leaves_the_records_as_they_are_may_change_the_rest() -> None:
    guard(OWNED, WRITERS, update(HELD, dict(HELD)))
    guard(OWNED, WRITERS, update(HELD, {**HELD, "hami.io/gpu-scheduler-policy": "spread", "note": "mine"}))
    guard(OWNED, WRITERS, update(None, {"nvidia.com/use-gputype": "A10"}))
    guard(OWNED, WRITERS, update({}, None))


def test_nothing_is_said_about_an_object_that_goes() -> None:
    guard(OWNED, WRITERS, Review("DELETE", "pods", "", "team", ADMIN, None, pod(HELD)))


def test_a_new_pod_has_no_record() -> None:
    guard(OWNED, WRITERS, Review(CREATE, "pods", "", "team", ADMIN, pod({"note": "mine"})))
    error = refusal(Review(CREATE, "pods", "", "team", ADMIN, pod(HELD)))
    assert 'pod team/p: user "admin" may not set metadata.annotations[hami.io/bind-phase] to "success"' in error.message
    assert error.message.endswith(": remove it")


@pytest.mark.parametrize(("resource", "subresource"), [("pods", "binding"), ("bindings", "")])
def test_the_record_in_a_binding_is_the_schedulers(resource: str, subresource: str) -> None:
    bound = {"metadata": {"name": "p", "annotations": HELD}, "target": {"kind": "Node", "name": "n"}}
    plain = {"metadata": {"name": "p", "annotations": {"note": "mine"}}, "target": {"kind": "Node", "name": "n"}}
    guard(OWNED, WRITERS, Review(CREATE, resource, subresource, "team", SCHEDULER, bound))
    guard(OWNED, WRITERS, Review(CREATE, resource, subresource, "team", ADMIN, plain))
    error = refusal(Review(CREATE, resource, subresource, "team", ADMIN, bound))
    assert 'pod team/p: user "admin" may not set metadata.annotations[hami.io/bind-phase]' in error.message
    assert error.message.endswith(": leave it out of the Binding, and let the scheduler bind the pod")


def test_a_long_record_does_not_fill_the_screen() -> None:
    long = "GPU-0,NVIDIA,1,0:" * 100
    error = refusal(update({CARDS: long}, {CARDS: long[:-1]}))
    assert len(error.message) < 2 * LONGEST_SHOWN + 500


def test_an_agent_writes_the_records_of_its_own_node_only() -> None:
    agent = User("system:serviceaccount:subak-system:agent", node="n1")
    writers = Writers(frozenset(), frozenset({agent.name}))

    def change(node: str, user: User) -> Review:
        old, new = ({**pod(held), "spec": {"nodeName": node}} for held in (HELD, {**HELD, CARDS: ""}))
        return Review(UPDATE, "pods", "", "team", user, new, old)

    guard(OWNED, writers, change("n1", agent))
    elsewhere = User("system:serviceaccount:subak-system:agent", node="n2")
    unknown = User("system:serviceaccount:subak-system:agent")
    somebody = User("system:serviceaccount:team:default", node="n1")
    for review in (change("n1", elsewhere), change("n1", somebody), change("", unknown), change("n1", unknown)):
        with pytest.raises(ApiError, match="which only the scheduler and the agents of nodes write"):
            guard(OWNED, writers, review)


def test_the_label_by_which_agents_find_their_pods_is_a_record_too() -> None:
    label = "hami.io/vgpu-node"
    labelled = {"metadata": {"name": "p", "labels": {label: "n1", "app": "a"}}}
    guard(OWNED, WRITERS, Review(UPDATE, "pods", "", "team", ADMIN, labelled, labelled))
    error = refusal(Review(UPDATE, "pods", "", "team", ADMIN, {"metadata": {"name": "p"}}, labelled))
    assert f'may not remove metadata.labels[{label}], which is "n1"' in error.message


@pytest.mark.parametrize(
    "word",
    [
        "scheduling.k8s.io/group-name",
        "scheduling.volcano.sh/group-name",
        "scheduling.volcano.sh/queue-name",
        "volcano.sh/task-spec",
        "volcano.sh/preemptable",
        "gang.scheduling.koordinator.sh/name",
        "pod-group.scheduling.sigs.k8s.io/min-available",
    ],
)
def test_to_which_gang_a_pod_belongs_is_its_users_own_business(word: str) -> None:
    guard(OWNED, WRITERS, update({}, {word: "a"}))
    guard(OWNED, WRITERS, update({word: "a"}, {}))
