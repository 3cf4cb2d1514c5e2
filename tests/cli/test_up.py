"""`subak up` before it serves: cards or a state that it cannot use, how many files it may open, how much it may log."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from subak.node import nvml
from subak.node.nvml import Found
from tests.support.commands import subak
from tests.support.machines import INTERPRETER
from tests.support.nvml import Driver, Gpu
from tinykube.ration import LINES
from tinykube.server import errors
from tinykube.server.sqlite import SqliteJournal

up = importlib.import_module("subak.cli.up")

FAILED = "no NVIDIA cards are used: Driver/library version mismatch"
UNCUT = "card GPU-a is left out: it is in MIG mode, and no instances are cut"


@pytest.fixture
def hardware(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.yaml"
    path.write_text("nodes: [{profile: moore-threads, name: lab}]")
    return path


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found(None, (FAILED,)), [FAILED]),
        (Found(None, (UNCUT, "no NVIDIA cards are used: the driver knows none")), [UNCUT]),
        (Found(None, ("no NVIDIA cards are used: NVML Shared Library Not Found",), driver=False), []),
    ],
)
def test_why_cards_are_not_used_is_told_where_there_is_a_driver(
    hardware: Path, monkeypatch: pytest.MonkeyPatch, found: Found, said: list[str]
) -> None:
    monkeypatch.setattr(nvml, "find", lambda languages: found)
    machines, notes = up._machines(INTERPRETER, str(hardware))
    assert [each.name for each in machines] == ["lab"]
    assert notes[:1] == said


def test_cards_are_not_left_out_silently_because_a_described_node_has_the_name(
    hardware: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nvml.find(INTERPRETER, Driver([Gpu("GPU-a", "0000:3b:00.0")]), tmp_path)
    monkeypatch.setattr(nvml, "find", lambda languages: found)
    monkeypatch.setenv("SUBAK_SLICES", str(tmp_path / "slices"))
    assert found.machine is not None
    hardware.write_text(f"nodes: [{{profile: moore-threads, name: {found.machine.name}}}]")
    machines, notes = up._machines(INTERPRETER, str(hardware))
    assert len(machines) == 1
    assert notes == [
        f"the NVIDIA cards of this machine are left out: another node has its name, {found.machine.name}: "
        f"give it another in {hardware}"
    ]


def start(tmp_path: Path, hardware: Path) -> tuple[int, str]:
    done = subak(
        *("up", "--state", tmp_path / "state", "--hardware", hardware, "--kubeconfig", tmp_path / "config"),
        *("--runtime", "none"),
    )
    return done.code, done.err.splitlines()[-1]


def test_an_emptied_database_is_no_new_cluster(tmp_path: Path, hardware: Path) -> None:
    SqliteJournal(tmp_path / "state").close()
    (tmp_path / "state" / "state.db").write_bytes(b"")
    for _ in range(2):
        assert start(tmp_path, hardware) == (
            2,
            f"error: {tmp_path}/state/state.db: it is empty: what was kept here cannot be served; restore a backup "
            "(subak restore), or begin anew, each in another directory",
        )
    assert not (tmp_path / "config").exists()


def test_a_start_on_a_full_disk_ends_with_a_sentence(
    tmp_path: Path, hardware: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SqliteJournal, *row: object) -> None:
        raise errors.internal("no room")

    monkeypatch.setattr(SqliteJournal, "put", full)
    assert start(tmp_path, hardware) == (1, "error: the cluster cannot be started: Internal error occurred: no room")


COMPLAINING = """
import importlib, logging, resource
from subak.cli import cli

async def serve(*_):
    for number in range(1000):
        logging.getLogger("x").warning("client %d is odd", number)
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
    return 0

importlib.import_module("subak.cli.up")._serve = serve
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 500))
cli()
"""


@pytest.mark.long
def test_it_takes_all_descriptors_that_it_may_have_and_does_not_fill_a_disk_with_its_log(
    hardware: Path, tmp_path: Path
) -> None:
    words = ["up", "--hardware", str(hardware), "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run([sys.executable, "-c", COMPLAINING, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "(500, 500)\n"), done.stderr
    assert done.stderr.count("is odd") == LINES
