"""Who is known to the server as whom."""

from __future__ import annotations

from tests.support import talk
from tests.support.talk import Talk, binding, pod
from tinykube.admission import Review
from tinykube.client import Client
from tinykube.resource import PODS
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.users import ADMIN, LOOPBACK, Acting
from tinykube.user import NODES, User

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NODE = User("system:node:n1", (NODES,))


async def test_everybody_learns_who_he_is() -> None:
    server = Server(Store())
    whole = Talk(server)
    assert (await whole.create(WHOAMI, {}))["status"]["userInfo"] == ADMIN.info()
    answer = await Client(Acting(server, NODE)).request("POST", WHOAMI, None, {})
    assert b'"userInfo":{"username":"system:node:n1","groups":["system:nodes"]}' in answer.body


async def test_guards_see_who_writes_what_and_where() -> None:
    seen: list[tuple[str, ...]] = []

    def note(review: Review) -> None:
        changed = "old" if review.old else "new"
        seen.append((review.operation, review.resource, review.subresource, review.user.name, changed))

    server = Server(Store(), guards=[note])
    whole = Talk(server)
    for name in ("a", "b"):
        await whole.create(talk.PODS, pod(name))
    node = Client(Acting(server, NODE))
    await node.patch(PODS, "a", "default", {"metadata": {"labels": {"x": "y"}}})
    await node.patch_status(PODS, "a", "default", {"phase": "Running"})
    await node.bind("a", "default", "n1")
    await whole.create("/api/v1/namespaces/default/bindings", binding("b"))
    await whole.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    assert seen == [
        ("CREATE", "pods", "", "admin", "new"),
        ("CREATE", "pods", "", "admin", "new"),
        ("UPDATE", "pods", "", "system:node:n1", "old"),
        ("UPDATE", "pods", "status", "system:node:n1", "old"),
        ("CREATE", "pods", "binding", "system:node:n1", "new"),
        ("CREATE", "bindings", "", "admin", "new"),
    ]


def test_a_user_is_named_by_himself_or_by_a_group() -> None:
    assert LOOPBACK.is_among({"system:masters"})
    assert NODE.is_among({"system:node:n1"})
    assert not NODE.is_among({"system:node:n2", "system:masters"})
