"""A validating webhook for a real API server: each review of a pod or a Binding is put to a guard of ours."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e import namespace
from tests.e2e.identities import Identities
from tinykube.admission import Review
from tinykube.status import ApiError
from tinykube.user import User

Json = dict[str, Any]
PREFIX = 'admission webhook "pods.subak.io" denied the request: '
"""An API server puts this before what a webhook says."""


@contextmanager
def serving(directory: Path, guard: Callable[[Review], None]) -> Iterator[Json]:
    """A webhook at an address of ours; gives the configuration with which an API server finds it."""
    who = Identities(directory / "identities")
    who.server("webhook", [namespace.ADDRESS])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({**asked, "request": None, "response": answer(guard, asked["request"])}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((namespace.ADDRESS, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(who.certificate("webhook"), who.key("webhook"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        authority = b64encode(who.certificate("ca").read_bytes()).decode()
        yield configuration(f"https://{namespace.ADDRESS}:{server.server_port}/", authority)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(guard: Callable[[Review], None], request: Json) -> Json:
    """The response to the request of an AdmissionReview."""
    who = request["userInfo"]
    review = Review(
        request["operation"],
        request["resource"]["resource"],
        request.get("subResource", ""),
        request["namespace"],
        User(who["username"], tuple(who.get("groups", ())), who.get("uid", "")),
        request["object"],
        request["oldObject"],
    )
    try:
        guard(review)
    except ApiError as error:
        status = error.status()
        return {"uid": request["uid"], "allowed": False, "status": {**status, "message": error.message[len(PREFIX) :]}}
    return {"uid": request["uid"], "allowed": True}


def configuration(address: str, authority: str) -> Json:
    """For the pods of the namespace `default`, by whatever door they are written."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": "pods.subak.io",
        "clientConfig": {"url": address, "caBundle": authority},
        "rules": [{**rule, "resources": ["pods", "pods/*", "bindings"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "subak"},
        "webhooks": [webhook],
    }
