"""Who speaks to the embedded API server.

Whoever shows the token of the kubeconfig is the administrator.  Programs in the same process send requests by plain
calls; `Acting` says who they are.  What the server does by itself it does under the name that a real one has for that.
"""

from __future__ import annotations

from dataclasses import replace

from tinykube.transport import Request, Response, Transport
from tinykube.user import AUTHENTICATED, MASTERS, User

ADMIN = User("admin", (MASTERS, AUTHENTICATED), "admin")
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))


class Acting:
    """A way to a server in the same process, to which whoever takes it is known as `user`."""

    def __init__(self, server: Transport, user: User) -> None:
        self._server = server
        self._user = user

    async def send(self, request: Request) -> Response:
        """The server's answer to this user."""
        return await self._server.send(replace(request, user=self._user))

    async def close(self) -> None:
        """Nothing to let go of: the server is not ours to close."""
