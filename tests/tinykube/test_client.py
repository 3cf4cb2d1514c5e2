"""What the client sends, what it makes of the answers, and when it asks again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from subak.model import manifest
from tests.support import virtual
from tests.tinykube.scripted import Answer, Scripted, answer, refusal
from tinykube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client
from tinykube.codec import BadAnswer, Unreadable
from tinykube.resource import CONFIG_MAPS, NODES, PODS
from tinykube.status import ApiError
from tinykube.transport import Response, Unreachable

POD = {"kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "u"}, "spec": {"nodeName": "n1"}}


def client(*answers: Answer) -> tuple[Client, Scripted]:
    transport = Scripted(*answers)
    return Client(transport), transport


def test_an_object_is_read_as_a_dict_or_as_a_lean_struct() -> None:
    async def story() -> None:
        asked, transport = client(answer(POD))
        assert await asked.get(PODS, "a", "default") == POD
        pod = await asked.get(PODS, "a", "default", type=manifest.Pod)
        assert (pod.key, pod.spec.node_name) == ("default/a", "n1")
        assert transport.requests[0].path == "/api/v1/namespaces/default/pods/a"

    virtual.run(story())


def test_a_refusal_says_what_the_server_says() -> None:
    async def story() -> None:
        asked, _ = client(refusal(404, "NotFound", 'pods "a" not found'))
        with pytest.raises(ApiError, match='pods "a" not found') as caught:
            await asked.get(PODS, "a", "default")
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")

    virtual.run(story())


def test_a_refusal_by_something_in_between_is_shown_as_it_is() -> None:
    async def story() -> None:
        asked, _ = client(Response(502, body=b"<html>Bad Gateway</html>"))
        with pytest.raises(ApiError, match="the server answered 502: <html>Bad Gateway</html>"):
            await asked.get(PODS, "a", "default")

    virtual.run(story())


def test_an_answer_that_is_no_object_is_as_good_as_none() -> None:
    async def story() -> None:
        asked, _ = client(Response(200, body=b"<html>Welcome</html>"))
        with pytest.raises(BadAnswer, match="Welcome"):
            await asked.get(PODS, "a", "default")

    virtual.run(story())


def page(*names: str, token: str = "", revision: str = "7") -> Response:
    metadata = {"resourceVersion": revision, "continue": token}
    return answer({"metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]})


def test_a_list_is_read_page_by_page() -> None:
    async def story() -> None:
        asked, transport = client(page("a", "b", token="t1"), page("c"))
        listing = await asked.list(PODS, labels="app=x", type=manifest.Pod)
        assert [pod.name for pod in listing.items] == ["a", "b", "c"]
        assert listing.revision == "7"
        assert transport.requests[1].query == {"labelSelector": "app=x", "limit": "500", "continue": "t1"}

    virtual.run(story())


def test_a_list_whose_next_page_has_expired_is_read_at_once() -> None:
    async def story() -> None:
        asked, transport = client(page("a", token="t1"), refusal(410, "Expired", "too old"), page("a", "b"))
        listing = await asked.list(PODS)
        assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
        assert transport.requests[2].query == {}

    virtual.run(story())


def test_one_bad_object_in_a_list_is_named() -> None:
    items = [{"metadata": {"name": "good"}}, {"metadata": {"name": "bad", "namespace": "x"}, "spec": []}]

    async def story() -> None:
        asked, _ = client(answer({"metadata": {}, "items": items}))
        with pytest.raises(Unreadable, match="x/bad: .*spec"):
            await asked.list(PODS, type=manifest.Pod)
        listing = await asked.list(PODS, type=manifest.Pod, strict=False)
        assert [pod.name for pod in listing.items] == ["good"]
        assert [problem.key for problem in listing.unreadable] == ["x/bad"]

    virtual.run(story())


def test_a_list_without_items_is_empty() -> None:
    async def story() -> None:
        asked, _ = client(answer({"metadata": {"resourceVersion": "3"}, "items": None}))
        assert (await asked.list(PODS)).items == []

    virtual.run(story())


def test_a_server_that_is_busy_is_asked_again_when_it_says_so() -> None:
    async def story() -> None:
        busy = refusal(429, "TooManyRequests", "later", retry_after="2")
        asked, transport = client(busy, busy, answer(POD))
        await asked.create(PODS, POD, "default")
        assert len(transport.requests) == 3

    virtual.run(story())


def test_a_server_that_refuses_for_good_is_asked_once() -> None:
    async def story() -> None:
        asked, transport = client(refusal(429, "TooManyRequests", "disruption budget"))
        with pytest.raises(ApiError, match="disruption budget"):
            await asked.create(PODS, POD, "default")
        assert len(transport.requests) == 1

    virtual.run(story())


def test_what_has_not_reached_the_server_is_sent_again() -> None:
    async def story() -> None:
        asked, transport = client(Unreachable("connection refused"), answer(POD))
        await asked.create(PODS, POD, "default")
        assert len(transport.requests) == 2
        asked, _ = client(Unreachable("connection refused"))
        with pytest.raises(Unreachable):
            await asked.create(PODS, POD, "default")

    virtual.run(story())


def test_what_may_have_reached_the_server_is_not_sent_again() -> None:
    async def story() -> None:
        for error in (ConnectionError("reset"), TimeoutError()):
            asked, transport = client(error)
            with pytest.raises((OSError, TimeoutError)):
                await asked.create(PODS, POD, "default")
            assert len(transport.requests) == 1

    virtual.run(story())


def test_each_kind_of_patch_says_what_it_is() -> None:
    async def story() -> None:
        asked, transport = client(answer(POD))
        await asked.patch(PODS, "a", "default", {"metadata": {"labels": {"x": None}}})
        await asked.patch(PODS, "a", "default", [{"op": "remove", "path": "/x"}], kind=JSON_PATCH)
        await asked.patch_status(PODS, "a", "default", {"phase": "Failed"}, uid="u")
        kinds = [request.headers["content-type"] for request in transport.requests]
        assert kinds == [MERGE_PATCH, JSON_PATCH, STRATEGIC_PATCH]
        assert transport.requests[-1].path.endswith("/pods/a/status")
        assert transport.body == {"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}

    virtual.run(story())


def test_apply_says_who_applies() -> None:
    async def story() -> None:
        asked, transport = client(answer({}))
        await asked.apply(CONFIG_MAPS, "c", "default", {"data": {}}, manager="me", force=True, dry_run=True)
        request = transport.requests[0]
        assert request.method == "PATCH"
        assert request.query == {"fieldManager": "me", "force": "true", "dryRun": "All"}
        assert request.headers["content-type"] == "application/apply-patch+yaml"

    virtual.run(story())


def test_delete_sends_only_the_options_that_are_given() -> None:
    async def story() -> None:
        asked, transport = client(answer({"kind": "Status"}))
        await asked.delete(NODES, "n1")
        assert transport.requests[-1].body == b""
        await asked.delete(PODS, "a", "default", grace=0, propagation="Background", uid="u")
        assert transport.body == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u"},
        }

    virtual.run(story())


def test_delete_without_a_name_does_not_delete_everything() -> None:
    async def story() -> None:
        asked, transport = client(answer({}))
        with pytest.raises(ValueError, match="nodes: the name is missing"):
            await asked.delete(NODES, "")
        assert transport.requests == []

    virtual.run(story())


def test_a_binding_carries_node_annotations_and_uid_at_once() -> None:
    async def story() -> None:
        asked, transport = client(answer({"kind": "Status"}, 201))
        await asked.bind("a", "default", "n1", uid="u", annotations={"volcano.sh/gpu-index": "0"})
        assert transport.requests[0].path == "/api/v1/namespaces/default/pods/a/binding"
        annotations = {"volcano.sh/gpu-index": "0"}
        assert transport.body["metadata"] == {
            "name": "a",
            "namespace": "default",
            "uid": "u",
            "annotations": annotations,
        }
        assert transport.body["target"]["name"] == "n1"

    virtual.run(story())


def test_logs_come_as_the_server_sends_them() -> None:
    async def story() -> None:
        asked, transport = client(Response(200, body=b"hello\n"))
        chunks = await asked.logs("a", "default", container="c", tail_lines=3)
        assert [chunk async for chunk in chunks] == [b"hello\n"]
        assert transport.requests[0].query == {"container": "c", "tailLines": "3"}

    virtual.run(story())


def test_the_client_alone_loads_no_http_library() -> None:
    code = "import sys, tinykube.client, tinykube.reflector; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
