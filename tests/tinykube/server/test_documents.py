"""Bodies that are meant to harm: each is answered, quickly, and the server goes on."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bombs import BOMB, MERGES
from tests.support.fuzz import examples
from tests.support.talk import CONFIG_MAPS, PATCHES, PODS, Talk
from tinykube.depth import LEVELS
from tinykube.server.documents import MOST_VALUES

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
SECRETS = "/api/v1/namespaces/default/secrets"
JSON, YAML = "application/json", "application/yaml"
FIELDS = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"f","managedFields":[{"manager":"x",%s' % (
    b'"operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%s}]}}'
)


def nest(levels: int, before: bytes = b"[", after: bytes = b"]", inside: bytes = b"1") -> bytes:
    return before * levels + inside + after * levels


@pytest.fixture
async def talk() -> Talk:
    talk = Talk()
    await talk.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    volcano = "scheduling.volcano.sh/v1beta1"
    await talk.create(
        QUEUES, {"apiVersion": volcano, "kind": "Queue", "metadata": {"name": "a"}, "spec": {"weight": 1}}
    )
    return talk


DOORS = [
    ("POST", CONFIG_MAPS, JSON),
    ("POST", CONFIG_MAPS, YAML),
    ("POST", QUEUES, JSON),
    ("POST", QUEUES, YAML),
    ("DELETE", f"{CONFIG_MAPS}/a", JSON),
    ("POST", f"{PODS}/p/binding", JSON),
    *(("PATCH", f"{path}/a", media) for path in (CONFIG_MAPS, QUEUES) for media in PATCHES.values()),
]
BODIES = {
    "brackets": b"[" * 100_000,
    "lists": nest(100_000),
    "maps": nest(100_000, b'{"a":', b"}"),
    "a few too many": nest(LEVELS + 1, b'{"a":', b"}"),
    "blocks": b"- " * 100_000,
    "aliases": BOMB.encode(),
    "merged aliases": MERGES.encode(),
    "itself": b"a: &a [*a]",
    "escapes": b'"' + b'\\"' * 1_000_000,
    "digits": b'{"a": ' + b"9" * 10_000,
    "a key that is none": b"? [a]\n: b",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_body_that_cannot_be_read_is_a_bad_request(talk: Talk, body: bytes) -> None:
    for method, path, media in DOORS:
        answer = await talk.send(method, path, body, headers={"content-type": media}, fieldManager="x")
        assert answer.code in (400, 415), (method, path, media, answer)
    assert (await talk.send("GET", f"{CONFIG_MAPS}/a")).code == 200


@pytest.mark.parametrize(
    ("media", "body", "told"),
    [
        (JSON, nest(100_000), "json parse error: invalid character '[' exceeded max depth ("),
        (JSON, nest(100_000, b'{"a":', b"}"), "json parse error: invalid character '{' exceeded max depth ("),
        (JSON, b'{"a": NaN}', "json parse error: NaN is no JSON ("),
        (YAML, nest(100_000), f"yaml: exceeded max depth of {LEVELS} ("),
        (YAML, BOMB.encode(), "yaml: document contains excessive aliasing"),
        (YAML, b"a: &a [*a]", "yaml: anchor 'a' value contains itself ("),
        (YAML, b"[" + b"1," * MOST_VALUES + b"1]", f"yaml: the document has more than {MOST_VALUES:,} values ("),
    ],
)
async def test_a_body_that_cannot_be_read_is_told_why(talk: Talk, media: str, body: bytes, told: str) -> None:
    answer = await talk.send("POST", CONFIG_MAPS, body, headers={"content-type": media})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert told in answer.body["message"]


async def test_patches_make_no_object_deeper_than_can_be_read(talk: Talk) -> None:
    """Each patch is shallow enough, and goes into what the one before has made."""
    path, codes = "/spec/extra", []
    for _ in range(4):
        body = b'[{"op": "add", "path": "%s", "value": %s}]' % (path.encode(), nest(60, inside=b""))
        codes.append((await talk.send("PATCH", f"{QUEUES}/a", body, patch="json")).code)
        path += "/0" * 60
    assert codes == [200, 400, 422, 422]  # the last two find no place to go to
    assert (await talk.send("GET", f"{QUEUES}/a")).code == 200


@pytest.mark.parametrize("levels", [50, 500, 100_000])
async def test_json_inside_of_texts_is_bounded_too(talk: Talk, levels: int) -> None:
    for step in (b'{"k:%s":{}}', b'{"v:%s":{}}', b'{"f:a":%s}'):
        body = FIELDS % (step % nest(levels))
        assert (await talk.send("POST", CONFIG_MAPS, body, dryRun="All")).code < 500
    docker = {".dockerconfigjson": base64.b64encode(nest(levels)).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}, "data": docker}
    answer = await talk.send("POST", SECRETS, {**secret, "type": "kubernetes.io/dockerconfigjson"})
    assert answer.code == 422
    last = {"kubectl.kubernetes.io/last-applied-configuration": nest(levels).decode()}
    noted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "l", "annotations": last},
        "data": {"k": "1"},
    }
    assert (await talk.send("POST", CONFIG_MAPS, noted, fieldManager="a")).code == 201
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "l"}, "data": {"k": "2"}}
    answer = await talk.send("PATCH", f"{CONFIG_MAPS}/l", applied, patch="apply", fieldManager="kubectl")
    assert answer.code == 409


signs = st.sampled_from([b"[", b"]", b"{", b"}", b'"', b":", b",", b"\\", b"1", b"-", b" ", b"\n", b"\xff", b"[" * 99])
words = st.sampled_from([b"e9", b"null", b"NaN", b"\\ud800", b'"a":', b"9" * 400, b"&a ", b"*a", b"- ", FIELDS[:62]])


@examples(50, ci=2_000)
@given(st.lists(signs | words, max_size=30).map(b"".join), st.sampled_from(DOORS))
async def test_any_body_is_answered(body: bytes, door: tuple[str, str, str]) -> None:
    method, path, media = door
    answer = await Talk().send(method, path, body, headers={"content-type": media}, fieldManager="x")
    assert answer.code < 500 or "failed to create typed patch" in answer.body["message"]
