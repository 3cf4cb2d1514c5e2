"""How tests find the processes of what they test (`tests.support.processes`)."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from tests.support.processes import children, descendants


@pytest.mark.long
def test_children_are_found_while_threads_come_and_go() -> None:
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            brief = threading.Thread(target=lambda: None)
            brief.start()
            brief.join()

    churning = threading.Thread(target=churn)
    with subprocess.Popen(["sleep", "1000"]) as child:
        churning.start()
        try:
            found = [child.pid in children(os.getpid()) for _ in range(500)]
        finally:
            ended.set()
            churning.join()
            child.kill()
    assert all(found)
    assert child.pid not in children(os.getpid())


def test_children_of_children_are_descendants() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout
        sleeper = int(shell.stdout.readline())
        try:
            assert {shell.pid, sleeper} <= set(descendants(os.getpid()))
            assert descendants(shell.pid) == [sleeper]
        finally:
            os.kill(sleeper, signal.SIGKILL)
