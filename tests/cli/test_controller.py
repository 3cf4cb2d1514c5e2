"""`subak controller`: what is said of options that cannot be used, and how it begins and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from subak.cli import cli
from subak.cli.program import endpoint

PATIENCE = 30.0


def kubeconfig(folder: Path, port: int) -> Path:
    """A kubeconfig for a server at this port."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


@contextmanager
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def found(*where: Any) -> tuple[bool, str]:
    in_a_pod, target = endpoint(*where)
    return in_a_pod, target.server


def test_a_pod_uses_its_own_account_unless_a_kubeconfig_is_named(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, 1)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(config)}
    account = tmp_path / "account"
    at_the_port = "http://127.0.0.1:1"
    assert found(None, "", environ, account) == (False, at_the_port), "the host is set, but there is no account"
    account.mkdir()
    for name in ("token", "ca.crt", "namespace"):
        (account / name).write_text(name)
    assert found(None, "", environ, account) == (True, "https://10.0.0.1:443")
    assert found(str(config), "", environ, account) == (False, at_the_port)
    assert found(None, "x", environ, account) == (False, at_the_port)
    assert found(None, "", {"KUBECONFIG": str(config)}, account) == (False, at_the_port)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "9440"], "'9440' is no ADDRESS:PORT, such as :9440"),
        (["--listen", ":99999"], "':99999' is no ADDRESS:PORT"),
        (["--foreign-lease", "volcano"], "'volcano' is no NAME=LEASE, such as volcano=vc-scheduler"),
        (["--batch-config", "conf"], "'conf' is no NAMESPACE/NAME, such as volcano-system/volcano-scheduler-configmap"),
        (["--group-timeout", "soon"], "'soon' is no duration"),
        (["--kubeconfig", "/nowhere"], "kubeconfig: /nowhere: No such file or directory"),
        (["--log-level", "loud"], "'loud' is not one of"),
        (["--device-config", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_options_are_named(options: list[str], message: str) -> None:
    answer = CliRunner().invoke(cli, ["controller", *options])
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_address_in_use_is_bad_input(tmp_path: Path) -> None:
    with taken() as port:
        options = ["--kubeconfig", str(kubeconfig(tmp_path, port)), "--listen", f"127.0.0.1:{port}"]
        answer = CliRunner().invoke(cli, ["controller", *options])
    assert answer.exit_code == 2
    assert f"error: 127.0.0.1:{port} cannot be listened on: " in answer.stderr


@pytest.mark.long
def test_without_an_api_server_it_says_so_and_goes_on_until_it_is_asked_to_end(tmp_path: Path) -> None:
    with taken() as free:
        pass  # nobody listens there any more
    options = ["--kubeconfig", str(kubeconfig(tmp_path, free)), "--listen", "127.0.0.1:0"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "subak.cli", "controller", *options], stderr=log, env={**os.environ, "HOME": "/"}
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while "next try in" not in (text := (tmp_path / "log").read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert all(line.keys() >= {"time", "level", "event"} for line in lines)
    assert f"127.0.0.1:{free}: Connection refused" in lines[0]["event"]
