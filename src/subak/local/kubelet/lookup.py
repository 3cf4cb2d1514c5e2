"""ConfigMaps and Secrets for pods: read when a container starts, watched while a volume shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from subak.local.kubelet.content import ConfigMap, Contents, Reference, Secret
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.resource import CONFIG_MAPS, SECRETS
from tinykube.status import ApiError

RESOURCES = {ConfigMap: CONFIG_MAPS, Secret: SECRETS}

Watched = tuple[type[ConfigMap] | type[Secret], str, str]
Refresh = Callable[[], None]


class Lookup:
    """Reads what pods refer to.  A kind is watched from the first subscription on; without one it costs nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscribers: dict[Watched, dict[str, Refresh]] = {}
        self._tasks: dict[type, asyncio.Task[None]] = {}

    async def get(self, namespace: str, references: Iterable[Reference]) -> Contents:
        """The contents of all references.  Raises ApiError, OSError or TimeoutError if the server does not answer."""
        return {reference: await self._one(namespace, reference) for reference in references}

    async def _one(self, namespace: str, reference: Reference) -> ConfigMap | Secret | None:
        kind, name = reference
        try:
            return await self._client.get(RESOURCES[kind], name, namespace, type=kind)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def subscribe(self, uid: str, namespace: str, references: Iterable[Reference], refresh: Refresh) -> None:
        """Call `refresh` whenever one of these changes, until `unsubscribe`."""
        for kind, name in references:
            self._subscribers.setdefault((kind, namespace, name), {})[uid] = refresh
            if kind not in self._tasks:
                self._tasks[kind] = asyncio.get_running_loop().create_task(self._reflector(kind).run())

    def unsubscribe(self, uid: str, namespace: str, references: Iterable[Reference]) -> None:
        """End the pod's subscription."""
        for kind, name in references:
            subscribers = self._subscribers.get((kind, namespace, name), {})
            subscribers.pop(uid, None)
            if not subscribers:
                self._subscribers.pop((kind, namespace, name), None)

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    def _reflector(self, kind: type[ConfigMap] | type[Secret]) -> Reflector[ConfigMap | Secret]:
        def changed(_: str, object: ConfigMap | Secret) -> None:
            metadata = object.metadata
            for refresh in list(self._subscribers.get((kind, metadata.namespace, metadata.name), {}).values()):
                refresh()

        return Reflector(self._client, RESOURCES[kind], kind, changed)
