"""Asks all checks at once, each with a time limit, and says what it means if one of them could not look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from subak.doctor import CannotTell, Check, Checks, Finding, failed, unknown
from tinykube.status import ApiError

S = TypeVar("S")

LIMIT = 15.0
"""Seconds for one check: longer than the 10 s after which an API server gives up on a webhook."""
ROLE = "subak-doctor"
"""The ClusterRole (deploy/manifests) that lets a user see all that the checks look at."""
ALLOW = f"an administrator can allow it: kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user=..."
OURS = "this is a mistake in Subak: please report it with `subak --version`"


@dataclass(frozen=True, slots=True)
class Examined:
    """One finding, and the check that found it."""

    group: str
    name: str
    finding: Finding


async def examine(
    subject: S, checks: Checks[S], done: Callable[[int, int], None] = lambda *_: None, limit: float = LIMIT
) -> list[Examined]:
    """The findings of all checks, in the order of the registry.  `done` is told how many of how many are through."""
    asked = [(group, name, check) for group, members in checks.items() for name, check in members.items()]
    through = 0

    async def ask(group: str, name: str, check: Check[S]) -> list[Examined]:
        nonlocal through
        findings = await _answer(check, subject, limit)
        through += 1
        done(through, len(asked))
        return [Examined(group, name, each) for each in findings]

    done(0, len(asked))
    answers = await asyncio.gather(*(ask(*each) for each in asked))
    return [each for answer in answers for each in answer]


async def _answer(check: Check[S], subject: S, limit: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(limit):
            return await check(subject)
    except CannotTell as error:
        return [unknown(str(error), error.remedy)]
    except ApiError as error:
        if error.code == 403:
            return [unknown(error.message, ALLOW)]
        return [unknown(f"the API server answers {error.code}: {error.message}", "look at its log, and try again")]
    except TimeoutError:
        return [unknown(f"no answer within {limit:.0f} s", "try again; if it stays so, what is asked there is stuck")]
    except PermissionError as error:
        return [unknown(f"{error.filename or 'what was asked'}: {error.strerror}", "run it as root")]
    except OSError as error:
        return [failed(str(error) or type(error).__name__, "see whether that is there and works")]
    except Exception as error:
        return [unknown(f"the check itself failed: {type(error).__name__}: {error}", OURS)]
