"""The API server: version, clock, user."""

from __future__ import annotations

from datetime import timedelta

import pytest

from subak.doctor import Level
from subak.doctor.cluster import api, server
from tests.doctor.canned import Answer, client
from tests.doctor.cluster.worlds import NOW, found

SELF = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ("v1.36.3", Level.OK, "v1.36.3"),
        ("v1.37.0-rc.1+k3s1", Level.OK, "v1.37"),
        ("v1.29.8", Level.WARNING, "records of allocations are not guarded"),
        ("v1.36.3+subak", Level.OK, "subak up"),
        ("weird", Level.UNKNOWN, "'weird'"),
    ],
)
async def test_versions(version: str, level: Level, words: str) -> None:
    (finding,) = await found(api.version, {"GET /version": {"gitVersion": version}})
    assert finding.level is level
    assert words in finding.seen


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0, Level.OK, "the same time"),
        (1.4, Level.OK, "the same time"),
        (-6, Level.WARNING, "s ahead of"),
        (60, Level.FAILED, "60 s behind"),
    ],
)
async def test_a_clock_that_is_wrong(seconds: float, level: Level, words: str) -> None:
    told = (NOW + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    finding = api.told_apart((await server(client({}, told), lambda: NOW.timestamp())).ahead)
    assert finding.level is level
    assert words in finding.seen


async def test_a_server_that_does_not_tell_the_time() -> None:
    assert (await server(client({}))).ahead == 0


@pytest.mark.parametrize(("allowed", "level"), [(True, Level.OK), (False, Level.UNKNOWN)])
async def test_who_we_are_and_what_we_see(allowed: bool, level: Level) -> None:
    answers: dict[str, Answer] = {
        SELF: {"status": {"userInfo": {"username": "jane"}}},
        ACCESS: {"status": {"allowed": allowed}},
    }
    (finding,) = await found(api.user, answers)
    assert finding.level is level
    assert "jane" in finding.seen
