"""The API server itself: requests in, answers out, no socket needed.

`Server` is a Transport: code in the same process sends requests by a plain call; `http` serves everybody else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinykube.failures import shown, told
from tinykube.server import (
    deletion,
    documents,
    errors,
    negotiation,
    options,
    patching,
    pods,
    rules,
    scale,
    selectors,
    streams,
    table,
)
from tinykube.server.answers import AnswerForm, refusal
from tinykube.server.controllers import Controllers
from tinykube.server.discovery import ServerInfo, answer_to
from tinykube.server.kinds import POD, Kind
from tinykube.server.kubelet import Kubelet, Session
from tinykube.server.negotiation import JSON, YAML, Form
from tinykube.server.registry import Guard, Hook, Registry, Target
from tinykube.server.routes import Routes
from tinykube.server.store import Store, Stored, encode
from tinykube.server.users import ADMIN
from tinykube.server.watch import ChangeSignal, Watch
from tinykube.status import ApiError
from tinykube.transport import Request, Response

Json = dict[str, Any]
Handler = Callable[[Request, Target, AnswerForm], Awaitable[Response]]

MOST_BYTES = 3 * 1024 * 1024
TURN_SECONDS = 0.005
"""How often a series of plain calls lets other tasks run."""

log = logging.getLogger(__name__)


class Server:
    """Answers requests as a kube-apiserver does, for the kinds that it serves.

    `hooks` and `guards` stand for admission webhooks.  A hook may change a pod that is being created, or refuse it; a
    guard may refuse any write of a pod, and a Binding.  Without `workloads` there is no controller for Deployments and
    the like.  Version and kubeconfig show `name`.
    """

    def __init__(
        self,
        store: Store,
        kubelet: Kubelet | None = None,
        hooks: Sequence[Hook] = (),
        guards: Sequence[Guard] = (),
        clock: Callable[[], float] = time.time,
        workloads: bool = True,
        name: str = "tinykube",
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.kubelet = kubelet
        self.routes = Routes(store.kinds)
        self.registry = Registry(store, hooks, guards, clock, steady)
        self._store = store
        self._info = ServerInfo(name, store.kinds)
        self._clock = clock
        self._turn = 0.0
        self._signal = ChangeSignal(store)
        self._controllers = Controllers(self.registry, workloads)
        self._handlers: dict[str, Handler] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
            "bind": self._bind,
            "evict": self._evict,
            "log": self._log,
            "exec": self._exec,
            "proxy": self._proxy,
        }

    async def send(self, request: Request) -> Response:
        """The answer to a request, whatever it is."""
        if time.monotonic() - self._turn > TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn = time.monotonic()
        view = None
        try:
            if len(request.body) > MOST_BYTES:
                message = f"Request entity too large: limit is {MOST_BYTES}"
                raise ApiError(413, "RequestEntityTooLarge", message)
            parts = request.path.strip("/").split("/")
            found = self.routes.resolve(request.method, parts)
            if found is None:
                return answer_to(request, parts, self._info, self.registry.now)
            verb, target = found
            form = _form(request, target, verb)
            include = table.check(request.query.get("includeObject", "")) if form.convert == "Table" else ""
            view = AnswerForm(target.kind, form, include, self._clock)
            handler = self._scale if target.subresource == "scale" else self._handlers[verb]
            return await handler(request, target, view)
        except ApiError as error:
            return view.refused(error) if view else refusal(error)
        except Exception as error:
            log.error("%s %s failed: %s", shown(request.method), shown(request.path), told(error))
            return refusal(ApiError(500, "InternalError", f"Internal error occurred: {error}"))

    async def execute(self, namespace: str, name: str, query: Mapping[str, str], command: Sequence[str]) -> Session:
        """Start a program in a container of a pod; raises ApiError."""
        pod = self.registry.find(Target(POD, namespace, name)).object
        return await streams.execute(self.kubelet, pod, streams.execution(query, command))

    async def close(self) -> None:
        """End all watches."""
        self._signal.close()
        self._controllers.close()

    # Reading

    async def _get(self, request: Request, target: Target, view: AnswerForm) -> Response:
        return view.object(self.registry.get(target, request.query.get("resourceVersion", "")))

    async def _list(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = options.listing(request.query)
        selectors.test(target.kind, wanted.labels, wanted.fields)
        if not wanted.watch:
            return view.page(self.registry.list(target, wanted))
        if view.form.media == YAML:
            raise negotiation.not_acceptable((f"{JSON};stream=watch",))
        watch = Watch(self._store, self._signal, target.kind, target.namespace, wanted, view.shape())
        headers = {"content-type": JSON, "cache-control": "no-cache, private"}
        return Response(200, headers, stream=watch.stream())

    # Writing

    async def _create(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = _writing(request, options.CREATE)
        object = _read(request, target.kind, wanted.validation, view.warnings)
        return view.object(self.registry.create(target, object, wanted), 201)

    async def _update(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = _writing(request, options.UPDATE)
        object = _read(request, target.kind, wanted.validation, view.warnings)
        return _written(view, *self.registry.update(target, object, wanted))

    async def _patch(self, request: Request, target: Target, view: AnswerForm) -> Response:
        media = patching.media(target.kind, request.headers.get("content-type", ""))
        wanted = _writing(request, options.PATCH, media == patching.APPLY)
        if media == patching.APPLY:
            applied = patching.applied(request.body, wanted, view.warnings)
            reader = patching.reader(target.kind, wanted, view.warnings)
            return _written(view, *self.registry.apply(target, applied, reader, wanted))
        change = patching.change(target, media, request.body, wanted, view.warnings)
        return view.object(self.registry.patch(target, change, wanted))

    async def _scale(self, request: Request, target: Target, view: AnswerForm) -> Response:
        if request.method == "GET":
            return view.object(scale.shown(self.registry.get(target, request.query.get("resourceVersion", ""))))
        if request.method == "PUT":
            wanted = options.writing(request.query, _agent(request), options.UPDATE)
            sent = _read(request, scale.SCALE, wanted.validation, view.warnings)
            return view.object(scale.write(self.registry, target, lambda _: sent, wanted))
        media = patching.media(scale.SCALE, request.headers.get("content-type", ""))
        if media == patching.APPLY:
            raise errors.bad_request("this server has no server-side apply for scale; use a merge patch")
        wanted = options.writing(request.query, _agent(request), options.PATCH)
        part = replace(target, kind=scale.SCALE, subresource="")
        change = patching.change(part, media, request.body, wanted, view.warnings)
        return view.object(scale.write(self.registry, target, change, wanted))

    async def _delete(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = _deletion(request)
        if deletion.preserves(target.kind, wanted):
            view.warnings.append(_PRESERVED)
        result, gone = deletion.delete(self.registry, target, wanted)
        code = 202 if not gone and wanted.orphan is False else 200
        return view.object(result, code) if isinstance(result, Stored) else view.said(result, code)

    async def _delete_collection(self, request: Request, target: Target, view: AnswerForm) -> Response:
        listed, wanted = options.listing({**request.query, "watch": "false"}), _deletion(request)
        if deletion.preserves(target.kind, wanted):
            view.warnings.append(_PRESERVED)
        return view.page(deletion.delete_collection(self.registry, target, listed, wanted))

    async def _bind(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = _writing(request, options.CREATE)
        content, _ = documents.content(request.body, request.headers.get("content-type", ""))
        binding = pods.quick_binding(content)
        if binding is None:
            binding = pods.binding(_read(request, pods.BINDING, wanted.validation, view.warnings))
        pods.bind(self.registry, target, binding, wanted)
        return view.said(_CREATED, 201)

    async def _evict(self, request: Request, target: Target, view: AnswerForm) -> Response:
        wanted = _writing(request, options.CREATE)
        eviction = _read(request, pods.EVICTION, wanted.validation, view.warnings)
        chosen = options.deletion(eviction.get("deleteOptions") or {})
        if wanted.dry_run:
            chosen = replace(chosen, dry_run=True)
        pods.evict(self.registry, target, eviction, chosen)
        return view.said(_CREATED, 201)

    # Containers

    async def _log(self, request: Request, target: Target, view: AnswerForm) -> Response:
        pod = self.registry.find(target).object
        stream = await streams.logs(self.kubelet, pod, request.query, self._clock())
        if stream is None:
            return Response(204, {"cache-control": "no-cache, private"})
        return Response(200, {"content-type": "text/plain", "cache-control": "no-cache, private"}, stream=stream)

    async def _exec(self, request: Request, target: Target, view: AnswerForm) -> Response:
        """Only reached by those who do not ask for a WebSocket, or who did and were refused."""
        pod = self.registry.find(target).object
        container = streams.check(pod, request.query.get("container", ""))
        if request.headers.get("upgrade", "").lower().startswith("spdy/"):
            raise streams.no_spdy(pod, container)
        raise errors.bad_request("Upgrade request required")

    async def _proxy(self, request: Request, target: Target, view: AnswerForm) -> Response:
        """What the node's kubelet answers: it is asked for one thing only."""
        self.registry.find(replace(target, subresource=""))
        path = request.path.strip("/").split("/")[5:]
        if path != ["stats", "summary"]:
            return Response(404, {"content-type": "text/plain; charset=utf-8"}, b"404 page not found\n")
        if request.method not in ("GET", "POST"):
            return Response(405, {"content-type": "text/plain; charset=utf-8"}, b"405: Method Not Allowed")
        return Response(200, {"content-type": JSON}, encode(await streams.summary(self.kubelet, target.name)))


def _form(request: Request, target: Target, verb: str) -> Form:
    accept = request.headers.get("accept", "")
    if not target.kind.custom:
        negotiation.check(accept, verb == "list")
    form = negotiation.form(accept)
    if negotiation.is_pretty(request.query.get("pretty", ""), _agent(request)):
        return replace(form, pretty=True)
    return form


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "")


def _writing(request: Request, kind: Kind, applied: bool = False) -> options.WriteOptions:
    return options.writing(request.query, _agent(request), kind, applied, request.user or ADMIN)


def _written(view: AnswerForm, stored: Stored, created: bool) -> Response:
    return view.object(stored, 201 if created else 200)


def _read(request: Request, kind: Kind, validation: str, warnings: list[str]) -> Json:
    """The object that a request sends; notes what is odd about it."""
    try:
        content, twice = documents.content(request.body, request.headers.get("content-type", ""))
    except documents.BadYaml as error:
        shown = f"{request.body[:30].hex()}{' ...' if len(request.body) > 30 else ''}"
        message = f"the object provided is unrecognized (must be of type {kind.kind}): {error.message} ({shown})"
        raise errors.bad_request(message) from None
    if twice and validation == "Strict":
        lines = "".join(f"\n  {each}" for each in twice)
        message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error:'
        raise errors.bad_request(f"{message} yaml: unmarshal errors:{lines}")
    object, odd = rules.read(kind, content, validation)
    if validation == "Warn":
        warnings += [*twice, *odd]
    return object


def _decoded(request: Request) -> Json:
    return documents.decoded(request.body, request.headers.get("content-type", ""))


def _deletion(request: Request) -> options.DeleteOptions:
    if not request.body:
        return options.deleting(request.query)
    return options.deletion(_decoded(request))


_PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
