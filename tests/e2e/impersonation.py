"""Requests to a real API server in the names of many users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

from tests.e2e.cluster import Cluster
from tests.support.doors import World
from tests.support.talk import PODS, Talk
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.transport import Request, Response
from tinykube.user import NODE_OF_TOKEN


class Impersonating:
    """A way to a real server for whoever may speak in the name of others."""

    def __init__(self, cluster: Cluster) -> None:
        self._transport = HttpTransport(load(cluster.kubeconfig))

    async def send(self, request: Request) -> Response:
        headers = {"content-type": "application/json", **request.headers}
        if request.user is not None:
            headers |= {"impersonate-user": request.user.name, "impersonate-group": request.user.groups[0]}
            if request.user.node:
                headers[f"impersonate-extra-{quote(NODE_OF_TOKEN, safe='')}"] = request.user.node
        return await self._transport.send(replace(request, headers=headers))

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[World]:
    talk = Talk()
    talk.way = Impersonating(cluster)
    try:
        yield await World(talk).open()
    finally:
        await talk.send("DELETE", PODS, gracePeriodSeconds=0)
        await talk.way.close()
