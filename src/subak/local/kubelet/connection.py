"""Connections to the hosts that probes name.

A name server may be silent for half a minute, and a probe may ask again each second.  So names are looked up in threads
that nothing else needs, and each name once at a time, however many ask for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from functools import partial

from tinykube.aside import Errands

USUAL_LIMIT = 1 << 16
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_look_ups = Errands()


async def connect(host: str, port: int, secure: ssl.SSLContext | None = None, limit: int = USUAL_LIMIT) -> Streams:
    """Connect to the first address of a host that answers.  Raises OSError."""
    failure = OSError(f"lookup {host}: no address")
    for address in await _addresses(host):
        try:
            name = host if secure else None
            return await asyncio.open_connection(address, port, ssl=secure, server_hostname=name, limit=limit)
        except OSError as error:
            failure = error
    raise failure


async def _addresses(host: str) -> Sequence[str]:
    if _is_address(host):
        return [host]
    return await _look_ups.run((asyncio.get_running_loop(), host), partial(_look_up, host))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(host: str) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:  # its number is none of the kernel's
        raise OSError(f"lookup {host}: {error.strerror}") from None
    except UnicodeError:
        raise OSError(f"lookup {host}: this is no name of a host") from None
    return [str(address[0]) for *_, address in found]
