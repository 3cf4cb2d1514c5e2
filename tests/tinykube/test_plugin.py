"""Credentials from a program: run when needed, believed until they expire."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tinykube.endpoint import ConfigError
from tinykube.plugin import Plugin

VERSION = "client.authentication.k8s.io/v1"

PROGRAM = """
import json, os, pathlib, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["spec"]["cluster"]["server"] == "https://h"
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
status = {"token": f"{os.environ['WHO']}-{len(runs.read_text())}", "expirationTimestamp": sys.argv[2]}
print(json.dumps({"kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": status}))
"""


def plugin(tmp_path: Path, expires: str, program: str = PROGRAM) -> Plugin:
    path = tmp_path / "login.py"
    path.write_text(program)
    argv = [sys.executable, str(path), str(tmp_path / "runs"), expires]
    return Plugin(argv, VERSION, {"WHO": "me"}, cluster={"server": "https://h"})


async def test_the_program_is_asked_once_for_many(tmp_path: Path) -> None:
    asked = plugin(tmp_path, "2999-01-01T00:00:00Z")
    identities = await asyncio.gather(*(asked.identity() for _ in range(5)))
    assert {each.headers["authorization"] for each in identities} == {"Bearer me-1"}


async def test_the_program_is_asked_again_when_its_answer_has_expired_or_was_refused(tmp_path: Path) -> None:
    asked = plugin(tmp_path, "2001-01-01T00:00:00Z")
    assert (await asked.identity()).headers["authorization"] == "Bearer me-1"
    assert (await asked.identity()).headers["authorization"] == "Bearer me-2"
    asked = plugin(tmp_path, "2999-01-01T00:00:00Z")
    assert (await asked.identity()).headers["authorization"] == "Bearer me-3"
    assert (await asked.identity(refused=True)).headers["authorization"] == "Bearer me-4"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit(3)", "failed with exit code 3"),
        ("print('hello')", "printed no ExecCredential"),
        ("print('{\"status\": {}}')", "gave neither a token nor a certificate"),
    ],
)
async def test_a_program_that_fails_is_named(tmp_path: Path, program: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await plugin(tmp_path, "", program).identity()


async def test_a_program_that_is_missing_comes_with_its_hint() -> None:
    with pytest.raises(ConfigError, match="credential program /no/such: No such file.*\nInstall it"):
        await Plugin(["/no/such"], VERSION, hint="Install it").identity()
