"""What kube-scheduler finds feasible: an extender that lets no pod pass, and remembers the nodes that it was handed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

Json = dict[str, Any]


class Extender:
    """`feasible` are the nodes that it was handed, by the pod's uid."""

    def __init__(self) -> None:
        self.feasible: dict[str, frozenset[str]] = {}

    async def filter(self, request: web.Request) -> web.Response:
        """Note the nodes, and refuse them all."""
        asked = await request.json()
        names = asked.get("NodeNames") or asked.get("nodenames") or []
        self.feasible[asked["Pod"]["metadata"]["uid"]] = frozenset(names)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only asked")})


@asynccontextmanager
async def extending() -> AsyncIterator[tuple[Extender, str]]:
    """An extender, and its address."""
    extender = Extender()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/filter", extender.filter)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield extender, f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def configure(file: Path, kubeconfig: Path, extender: str) -> None:
    """The configuration of a kube-scheduler that asks the extender about all nodes, and preempts nobody."""
    content: Json = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
            }
        ],
        "extenders": [{"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}],
    }
    file.write_text(json.dumps(content))
