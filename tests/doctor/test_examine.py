"""All checks are asked, whatever becomes of one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.doctor import CannotTell, Check, Finding, Level, failed, listed, ok
from subak.doctor.examine import examine
from subak.doctor.once import Once
from tinykube.status import ApiError


def giving(*findings: Finding) -> Check[None]:
    async def check(subject: None) -> Sequence[Finding]:
        return findings

    return check


def raising(error: Exception) -> Check[None]:
    async def check(subject: None) -> Sequence[Finding]:
        raise error

    return check


async def never(subject: None) -> Sequence[Finding]:
    await asyncio.Event().wait()
    return ()


ERRORS = {
    CannotTell("the file is no YAML", "correct it"): (Level.UNKNOWN, "the file is no YAML", "correct it"),
    ApiError(403, "Forbidden", "nodes is forbidden"): (
        Level.UNKNOWN,
        "nodes is forbidden",
        "--clusterrole=subak-doctor",
    ),
    ApiError(500, "InternalError", "etcd is away"): (Level.UNKNOWN, "answers 500: etcd is away", ""),
    PermissionError(13, "Permission denied", "/run/x"): (Level.UNKNOWN, "/run/x: Permission denied", "as root"),
    ConnectionRefusedError("it is away"): (Level.FAILED, "it is away", ""),
    TimeoutError(): (Level.UNKNOWN, "no answer within", ""),
    KeyError("a bug"): (Level.UNKNOWN, "KeyError: 'a bug'", "mistake in Subak"),
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_what_it_means_if_a_check_could_not_look(error: Exception) -> None:
    (found,) = await examine(None, {"g": {"n": raising(error)}})
    level, seen, remedy = ERRORS[error]
    assert found.finding.level is level
    assert seen in found.finding.seen
    assert remedy in found.finding.remedy


async def test_a_check_that_never_ends_is_given_up_and_the_others_are_told() -> None:
    found = await examine(None, {"g": {"slow": never, "quick": giving(ok("fine"))}}, limit=0.01)
    assert [(each.name, each.finding.level) for each in found] == [("slow", Level.UNKNOWN), ("quick", Level.OK)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([*ERRORS, 0, 1, 3])), max_size=8))
def test_findings_come_in_the_order_of_the_registry_and_none_is_lost(drawn: list[tuple[str, Exception | int]]) -> None:
    checks: dict[str, dict[str, Check[None]]] = {}
    wanted: dict[tuple[str, str], int] = {}
    for number, (group, made) in enumerate(drawn):
        several = giving(*[failed(str(i), "") for i in range(made)]) if isinstance(made, int) else raising(made)
        checks.setdefault(group, {})[f"{number}"] = several
        wanted[group, f"{number}"] = made if isinstance(made, int) else 1
    told: list[tuple[int, int]] = []
    found = asyncio.run(examine(None, checks, lambda *progress: told.append(progress)))
    order = [(group, name) for group, members in checks.items() for name in members for _ in range(wanted[group, name])]
    assert [(each.group, each.name) for each in found] == order
    assert [through for through, _ in told] == list(range(len(drawn) + 1))


async def test_what_several_checks_need_is_asked_once_and_outlives_who_gives_up() -> None:
    asked = 0
    go = asyncio.Event()

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await go.wait()
        return asked

    once = Once(ask)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await once()
    go.set()
    assert {await once(), await once()} == {1}


def test_many_names_are_cut_short() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(i) for i in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
