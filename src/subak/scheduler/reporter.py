"""Reports why a pod waits: an event, and the condition `PodScheduled=False`, which autoscalers read.

Only the latest report of a pod matters.  The condition is written with the resource version of a pod that has no node,
so a pod that was bound meanwhile is never marked as unschedulable.  A report waits until a server that is away, busy or
in trouble takes it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

from subak.model import manifest
from subak.scheduler.messages import Bind, Report
from tinykube.client import STRATEGIC_PATCH, Client
from tinykube.events import NORMAL, WARNING, Recorder, Reference
from tinykube.reflector import Reflector
from tinykube.resource import PODS
from tinykube.status import ApiError, is_temporary

WRITERS = 8
TRIES = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0

log = logging.getLogger(__name__)


class Reporter:
    """Writes reports, a few at a time; `run` must be running."""

    def __init__(self, client: Client, pods: Reflector[manifest.Pod], recorder: Recorder) -> None:
        self._client = client
        self._pods = pods
        self._recorder = recorder
        self._waiting: dict[str, Report] = {}
        self._latest: dict[str, Report] = {}
        self._reported: dict[str, str] = {}
        self._news = asyncio.Event()

    def report(self, report: Report) -> None:
        """Write the event now, and the condition soon."""
        pod = self._pods.objects.get(report.key)
        if pod is not None and pod.metadata.uid == report.uid:
            self._recorder.record(Reference.to(PODS, pod), WARNING, "FailedScheduling", report.message)
            self._waiting[report.key] = self._latest[report.key] = report
            self._news.set()

    def bound(self, bind: Bind) -> None:
        """Write that the pod is bound, and drop earlier reports."""
        self.forget(bind.key)
        self._recorder.record(_reference(bind), NORMAL, "Scheduled", f"Successfully assigned {bind.key} to {bind.node}")

    def not_bound(self, bind: Bind, why: str) -> None:
        """Write that the binding was refused; the pod is tried again."""
        self._recorder.record(_reference(bind), WARNING, "FailedScheduling", f"binding to {bind.node} failed: {why}")

    def forget(self, key: str) -> None:
        """Drop the reports of a pod that is gone or bound."""
        self._waiting.pop(key, None)
        self._latest.pop(key, None)
        self._reported.pop(key, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write_all())

    async def _write_all(self) -> None:
        failures = 0
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            key = next(iter(self._waiting))
            report = self._waiting.pop(key)
            try:
                await self._write(report)
                failures = 0
            except (ApiError, OSError, TimeoutError) as error:
                log.warning("pod %s could not be told why it waits: %s", key, error, extra={"pod": key})
                if is_temporary(error):
                    await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(failures, 10), LONGEST_PAUSE))
                    failures += 1
                    self._write_later(report)

    def _write_later(self, report: Report) -> None:
        """Put a report back, behind the others, unless there is news of the pod."""
        if self._latest.get(report.key) is report:
            self._waiting[report.key] = report
            self._news.set()

    async def _write(self, report: Report) -> None:
        """Set the condition.  If the pod has changed, read it and try again."""
        pod = self._pods.objects.get(report.key)
        for attempt in range(TRIES):
            if pod is None or pod.metadata.uid != report.uid or pod.spec.node_name:
                return
            if self._latest.get(report.key) is not report:
                return
            try:
                await self._patch(pod, report)
                self._reported[report.key] = report.uid
                return
            except ApiError as error:
                if error.code not in (404, 409, 422) or attempt == TRIES - 1:
                    raise
            pod = await self._read(report)

    async def _patch(self, pod: manifest.Pod, report: Report) -> None:
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": report.message,
        }
        if self._reported.get(report.key) != report.uid:
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"uid": report.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        await self._client.patch(
            PODS, pod.name, pod.namespace, body, kind=STRATEGIC_PATCH, subresource="status", type=manifest.Object
        )

    async def _read(self, report: Report) -> manifest.Pod | None:
        namespace, name = report.key.split("/")
        try:
            return await self._client.get(PODS, name, namespace, type=manifest.Pod)
        except ApiError as error:
            if error.code != 404:
                raise
            return None


def _reference(bind: Bind) -> Reference:
    namespace, name = bind.key.split("/")
    return Reference(PODS.api_version, PODS.kind, name, namespace, bind.uid)
