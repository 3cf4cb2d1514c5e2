"""A cluster as users start it: `subak up` in a separate process, and commands that speak to it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Live:
    """A running cluster."""

    process: subprocess.Popen[str]
    kubeconfig: Path
    greeting: str

    @property
    def env(self) -> dict[str, str]:
        """The environment of commands that speak to it."""
        return commands({"KUBECONFIG": str(self.kubeconfig)})

    def run(
        self, *command: str | Path, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on it; a test that wants kubectl is skipped where there is none."""
        if command[0] == "kubectl" and shutil.which("kubectl") is None:
            pytest.skip("kubectl is not installed")
        return subprocess.run(
            [str(word) for word in command],
            input=stdin,
            capture_output=True,
            check=check,
            text=True,
            env=self.env,
            cwd=ROOT,
            timeout=PATIENCE,
        )

    def subak(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `subak` on it."""
        return self.run("subak", *arguments, check=check)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; gives its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def commands(more: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `subak` is found."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", **more}


def free_port() -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def live(
    *options: str | Path, runtime: Path | None = None, program: str = "subak.cli", inside: Sequence[str] = ()
) -> Iterator[Live]:
    """`subak up` with these options, ready; it ends with the block at the latest.

    Its kubeconfig is a new file or, in the `runtime` directory of a user, the one that it chooses.  `inside` is a
    command that runs another one elsewhere, as `nsenter` does.
    """
    with tempfile.TemporaryDirectory() as folder:
        named = () if runtime else ("--kubeconfig", str(Path(folder) / "kubeconfig"))
        process = subprocess.Popen(
            [*inside, sys.executable, "-m", program, "up", *named, *map(str, options)],
            stdout=subprocess.PIPE,
            text=True,
            env=commands({"XDG_RUNTIME_DIR": str(runtime)} if runtime else {}),
            cwd=ROOT,
        )
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "ready\n":
                    break
            assert lines[-1:] == ["ready\n"], f"it never became ready: {lines}"
            (export,) = (line for line in lines if line.startswith("  export KUBECONFIG="))
            kubeconfig = Path(shlex.split(export)[1].removeprefix("KUBECONFIG="))
            yield Live(process, kubeconfig, "".join(lines))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)
            process.stdout.close()
