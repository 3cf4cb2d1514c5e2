"""`python -m tests.e2e.scheduler_process --kubeconfig FILE`: a scheduler as a process of its own, without a lease."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path

from subak.scheduler.served import NAMES
from subak.scheduler.service import Service
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load


async def run(kubeconfig: Path) -> None:
    """Schedule until killed."""
    client = Client(HttpTransport(load(kubeconfig)), "subak")
    await Service(client, serves=lambda pod: pod.spec.scheduler_name in NAMES).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(run(parser.parse_args().kubeconfig))
