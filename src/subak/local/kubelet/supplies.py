"""What a pod's containers need before they can start: volumes, variables, and their share of the cards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from subak.dialects import Injection
from subak.local.kubelet import environment, volumes
from subak.local.kubelet.admission import Rejected, asked, check
from subak.local.kubelet.content import Reference
from subak.local.kubelet.context import Context
from subak.local.kubelet.payload import BadVolume
from subak.local.kubelet.pod import Pod, Seen, Volume
from subak.local.kubelet.recipe import CONFIG_ERROR, Unstartable, recipe
from subak.local.kubelet.sandbox import Sandbox
from subak.local.runtime.spec import Spec
from subak.model import manifest
from subak.model.reason import NotReady, Refusal
from subak.model.request import Needs
from subak.policy.ports import opened
from tinykube.aside import Errands
from tinykube.resource import NODES
from tinykube.status import ApiError

PATIENCE = 10.0
"""Seconds for which a pod waits for a volume; then it looks whether something else has happened."""


class Supplies:
    """The supplies of one pod."""

    __slots__ = ("_context", "_errands", "_injections", "_node", "_subscribed", "_writing")

    def __init__(self, context: Context, node: str) -> None:
        self._context = context
        self._node = node
        self._injections: Sequence[Injection] | None = None
        self._subscribed: frozenset[Reference] = frozenset()
        self._writing = asyncio.Lock()
        self._errands = Errands()

    async def book(self, seen: Seen) -> None:
        """Book the pod on its node and give it its cards.  Raises Rejected or Refusal, and then holds nothing.

        A pod whose node is not ready for it is booked all the same: `recipe` asks again for each container.
        """
        account, uid, pod = self._context.account(self._node), seen.metadata.uid, seen.manifest()
        wanted = asked(pod)
        try:
            account.take(uid, wanted.resources, self._context.allocatable(self._node), opened(pod))
            await self._check(wanted)
            self._injections = await self._context.devices.allocate(pod)
        except NotReady:
            return
        except (Rejected, Refusal):
            account.give_back(uid)
            await self._context.devices.release(pod)  # after a restart it has its cards before it is looked at
            raise

    async def _check(self, wanted: Needs) -> None:
        """Raise Rejected if the node is not for such a pod."""
        node = self._context.nodes.get(self._node)
        if node is None:
            return
        try:
            check(wanted, node)
        except Rejected:
            # A scheduler may have learned of a new label earlier than we.
            with suppress(ApiError, OSError, TimeoutError):
                check(wanted, await self._context.client.get(NODES, self._node, type=manifest.Node))
                return
            raise

    def rest(self) -> None:
        """Forget what can be asked for again, since nothing starts for a while."""
        self._injections = None

    async def release(self, seen: Seen) -> None:
        """Release all that the pod held."""
        context, metadata = self._context, seen.metadata
        context.lookup.unsubscribe(metadata.uid, metadata.namespace, self._subscribed)
        await context.devices.release(seen.manifest())
        context.account(self._node).give_back(metadata.uid)

    async def set_up(self, pod: Pod, refresh: Callable[[], None]) -> list[str]:
        """Set up the volumes, and call `refresh` when their contents change; gives remarks for users.

        Raises BadVolume, or ApiError, OSError, TimeoutError if the server does not answer.
        """
        context = self._context
        sandbox = Sandbox(context.directory, pod.metadata) if context.processes else None
        if sandbox:
            sandbox.make(pod)
        remarks: list[str] = []
        if not pod.spec.volumes:
            return remarks
        references = frozenset(volumes.wanted(pod))
        async with self._writing:
            contents = await context.lookup.get(pod.namespace, references)
            for volume in pod.spec.volumes:
                try:
                    planned = volumes.plan(volume, pod, contents, context.allocatable(self._node))
                    # Many or deep files take long, and a path of the machine may be on a disk that does not answer.
                    if sandbox and (planned or volume.host_path or sandbox.volumes.inherited(volume)):
                        owner = volumes.owner(pod, volume)
                        remarks += await self._write(volume, partial(sandbox.volumes.set_up, volume, planned, owner))
                    elif sandbox:
                        remarks += sandbox.volumes.set_up(volume, planned)
                except BadVolume as error:
                    raise BadVolume(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from None
        if sandbox and references != self._subscribed:
            self._subscribed = references
            context.lookup.subscribe(pod.metadata.uid, pod.namespace, references, refresh)
        return remarks

    async def _write(self, volume: Volume, write: Callable[[], list[str]]) -> list[str]:
        """Write a volume in a thread.  Raises BadVolume if that takes long: it then goes on, and is asked for again."""
        try:
            async with asyncio.timeout(PATIENCE):
                if self._errands.under_way(volume.name):  # since an earlier attempt, with what was to be written then
                    await self._errands.run(volume.name, write)
                return await self._errands.run(volume.name, write)
        except TimeoutError:
            where = f" at {volume.host_path.path}" if volume.host_path else ""
            raise BadVolume(f"the disk{where} did not answer within {PATIENCE:g} s, and is waited for") from None

    async def recipe(self, seen: Seen, pod: Pod, index: int, attempt: int) -> Spec:
        """The spec of a container's next attempt.  Raises Unstartable."""
        context, container = self._context, pod.spec.all[index]
        allocatable = context.allocatable(self._node)
        try:
            contents = await context.lookup.get(pod.namespace, set(environment.references(container)))
            services = context.service_variables(pod.namespace, pod.spec.enable_service_links)
            said = environment.environment(pod, container, contents, services, allocatable)
            if self._injections is None:
                self._injections = await context.devices.allocate(seen.manifest())
            context.devices.starting(seen.manifest(), index)
            return recipe(
                pod,
                container,
                said,
                self._injections[index],
                context.devices.files(self._node),
                context.devices.simulated(self._node),
                Sandbox(context.directory, pod.metadata) if context.processes else None,
                attempt,
            )
        except Refusal as error:
            raise Unstartable(CONFIG_ERROR, error.message) from None
        except (ApiError, OSError, TimeoutError, ValueError) as error:  # BadConfig and BadVolume are ValueErrors
            raise Unstartable(CONFIG_ERROR, str(error)) from None
