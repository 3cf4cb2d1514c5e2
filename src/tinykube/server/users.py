"""Who speaks to the embedded API server.

A request with the token of the kubeconfig comes from the administrator.  Code in the same process sends requests by
plain calls; `Acting` says as which user.  What the server does by itself it does under the name that a real one uses.
"""

from __future__ import annotations

from dataclasses import replace

from tinykube.transport import Request, Response, Transport
from tinykube.user import AUTHENTICATED, MASTERS, User

ADMIN = User("admin", (MASTERS, AUTHENTICATED), "admin")
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))


class Acting:
    """A transport to a server in the same process; the server takes its requests as those of `user`."""

    def __init__(self, server: Transport, user: User) -> None:
        self._server = server
        self._user = user

    async def send(self, request: Request) -> Response:
        """The server's answer to this user."""
        return await self._server.send(replace(request, user=self._user))

    async def close(self) -> None:
        """Nothing to let go of: the server is not ours to close."""
