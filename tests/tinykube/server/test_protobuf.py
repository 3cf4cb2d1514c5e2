"""Bodies as kubectl's own commands send them.  The bytes were recorded from kubectl 1.36."""

from __future__ import annotations

from base64 import b64decode

import pytest

from tests.support.talk import Talk
from tinykube.server import protobuf
from tinykube.status import ApiError

PROTOBUF = "application/vnd.kubernetes.protobuf"

CONFIG_MAP = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEhsKEQoBYRIAGgAiACoAMgA4AEIAEgYKAXgSAXkaACIA"
QUOTA = (
    "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRI8ChEKAXESABoAIgAqADIAOABCABIlCgsKBHBvZHMSAwoBNQoWCgxyZXF1ZXN0cy5jcHUSBgoENTAwbRoA"
    "GgAiAA=="
)
SECRET = "azhzAAoMCgJ2MRIGU2VjcmV0Eh0KEQoBcxIAGgAiACoAMgA4AEIAEgYKAWsSAXYaABoAIgA="
SERVICE = (
    "azhzAAoNCgJ2MRIHU2VydmljZRJoCh8KA3N2YxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDc3ZjEkEKGwoHODAtODA4MBIDVENQGFAiBwgAEJA/GgAoABIK"
    "CgNhcHASA3N2YxoAIghOb2RlUG9ydDoAQgBSAFoAYABoABoCCgAaACIA"
)
ACCESS_REVIEW = (
    "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPwoQCgASABoAIgAqADIAOABCABIhCh8KB2RlZmF1"
    "bHQSBmNyZWF0ZRoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA="
)


def test_maps_bytes_quantities_and_numbers() -> None:
    assert protobuf.parse(b64decode(CONFIG_MAP))["data"] == {"x": "y"}
    assert protobuf.parse(b64decode(SECRET))["data"] == {"k": "dg=="}
    assert protobuf.parse(b64decode(QUOTA))["spec"]["hard"] == {"pods": "5", "requests.cpu": "500m"}
    (port,) = protobuf.parse(b64decode(SERVICE))["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["protocol"]) == (80, 8080, "TCP")


def test_moments_that_nobody_set_are_null() -> None:
    assert protobuf.parse(b64decode(CONFIG_MAP))["metadata"]["creationTimestamp"] is None


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        ("/api/v1/namespaces/default/configmaps", CONFIG_MAP, {"data": {"x": "y"}}),
        ("/api/v1/namespaces/default/secrets", SECRET, {"type": "Opaque"}),
        ("/api/v1/namespaces/default/resourcequotas", QUOTA, {"spec": {"hard": {"pods": "5", "requests.cpu": "500m"}}}),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ACCESS_REVIEW, {"status": {"allowed": True}}),
    ],
)
async def test_what_kubectl_sends_is_understood(path: str, body: str, shown: dict[str, object]) -> None:
    answer = await Talk().send("POST", path, b64decode(body), headers={"content-type": PROTOBUF})
    assert answer.code == 201
    assert answer.body.items() >= shown.items()


@pytest.mark.parametrize("body", [b"{}", b"k8s\x00\xff\xff", b64decode(CONFIG_MAP)[:-12], b"k8s\x00"])
def test_what_is_no_message_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.parse(body)
    assert caught.value.code == 400
