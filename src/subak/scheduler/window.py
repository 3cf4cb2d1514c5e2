"""What a running controller shows of itself over HTTP, to probes, to Prometheus and to `subak why`.

    /healthz               200 while it works: its event loop answers, and no watch is stuck
    /readyz                200 once it knows all objects, be it the leader or a standby; which names it serves
    /metrics               docs/reference/controller.md lists them
    /queues                how queues stand: what each deserves, holds and asks for
    /queues/NAME           the jobs of a queue, in the order in which they are tried
    /pods/NAMESPACE/NAME   where a pod is in its life, its story, and what every node says to it while it waits
    /gangs/WORDS/NAME      why a gang waits, and where each of its members is; in whose words, and its namespace/name

Nothing can be changed here, and nothing is secret: stories name nodes and cards.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
from aiohttp import web

from subak import __version__
from subak.batch import gangs
from subak.batch.explain import introduction
from subak.batch.world import Job, Status
from subak.model.reason import Refusal
from subak.policy.explain import Explanation
from subak.scheduler.core import Core
from subak.scheduler.metrics import CONTENT_TYPE, Metrics
from subak.scheduler.served import Served
from subak.scheduler.service import Service
from tinykube import window
from tinykube.reflector import Reflector


class Shown(Protocol):
    """What is shown; there is no service before the API server has answered."""

    served: Served
    service: Service | None
    metrics: Metrics | None

    @property
    def trouble(self) -> list[str]:
        """What does not work as it should."""

    @property
    def leader(self) -> str:
        """Who leads; empty if nobody does."""

    @property
    def reflectors(self) -> tuple[Reflector[object], ...]:
        """All watches."""


class Window(window.Window):
    """Serves it at an address; port 0 takes any that is free, and `port` tells which."""

    def __init__(self, shown: Shown, host: str, port: int) -> None:
        self._shown = shown
        paths = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/queues": self._queues,
            "/queues/{name}": self._jobs,
            "/pods/{namespace}/{name}": self._pod,
            "/gangs/{words}/{name:.+}": self._gang,
        }
        super().__init__(host, port, paths)

    async def _healthz(self, request: web.Request) -> web.Response:
        return window.health(self._shown.reflectors)

    async def _readyz(self, request: web.Request) -> web.Response:
        shown = self._shown
        missing = [str(each) for each in shown.reflectors if not each.synced.is_set()]
        ready = shown.service is not None and shown.service.ready.is_set() and not missing
        leading = shown.service is not None and shown.service.leading
        content = {
            "ready": ready,
            "version": __version__,
            "role": "leader" if leading else "standby",
            "leader": shown.leader,
            "served": [name for name in shown.served.names if name not in shown.served.foreign],
            "not_served": shown.served.foreign,
            "waiting_for": missing,
            "trouble": shown.trouble,
        }
        return web.json_response(content, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._shown.metrics is None:
            return web.Response(status=503, text="nothing is known yet\n")
        return web.Response(body=self._shown.metrics.printed().encode(), headers={"content-type": CONTENT_TYPE})

    async def _queues(self, request: web.Request) -> web.Response:
        service = self._shown.service
        if service is None or not service.ready.is_set():
            return web.json_response({"error": "nothing is known yet"}, status=503)
        return web.json_response({"queues": msgspec.to_builtins(service.core.batch.queues())})

    async def _jobs(self, request: web.Request) -> web.Response:
        service = self._shown.service
        if service is None or not service.ready.is_set():
            return web.json_response({"error": "nothing is known yet"}, status=503)
        jobs = service.core.batch.jobs_of(request.match_info["name"])
        return web.json_response({"jobs": msgspec.to_builtins(jobs)})

    async def _pod(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        service = self._shown.service
        state = None if service is None else service.core.state(key)
        if service is None or state is None:
            return web.json_response({"error": f"pod {key} is not known, or has finished"}, status=404)
        core = service.core
        booking = core.snapshot.bookings.get(key)
        content = {
            "pod": key,
            "role": "leader" if service.leading else "standby",
            "state": state.name.lower(),
            "node": "" if booking is None else booking.placement.node,
            "reason": core.reason(key),
            "story": [str(sentence) for sentence in core.story(key)],
            "explanation": msgspec.to_builtins(await _explained(core, key)),
        }
        return web.json_response(content)

    async def _gang(self, request: web.Request) -> web.Response:
        words, name = request.match_info["words"], request.match_info["name"]
        service = self._shown.service
        job = None if service is None else service.core.batch.world.jobs.get(gangs.key(words, name))
        if service is None or job is None:
            return web.json_response({"error": f"gang {name} is not known ({words})"}, status=404)
        core = service.core
        content = {
            "gang": name,
            "words": words,
            "role": "leader" if service.leading else "standby",
            "phase": job.phase.value,
            "queue": job.queue,
            "minMember": job.min_member,
            "message": _told(core, job),
            "members": {task.key: {"status": task.status.value, "node": task.node} for task in job.tasks.values()},
            "stories": {key: [str(sentence) for sentence in core.story(key)] for key in job.tasks},
        }
        return web.json_response(content)


def _told(core: Core, job: Job) -> str:
    """Why a gang waits, as the first of its members that wait was told."""
    waits = sorted(task.key for task in job.with_status(Status.PENDING, Status.PIPELINED))
    return next((why.removeprefix(introduction(job.name)) for key in waits if (why := core.reason(key))), "")


async def _explained(core: Core, key: str) -> Explanation | None:
    """What every node says to a waiting pod; the scheduler goes on meanwhile."""
    steps = core.explaining(key)
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        found: Explanation | None = end.value
        return found
    except Refusal:
        return None  # no node was asked; the reason says what is wrong
