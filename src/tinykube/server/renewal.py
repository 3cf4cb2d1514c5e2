"""Certificates are renewed while the server runs, before they expire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from tinykube.server.http import Listener
from tinykube.server.tls import KeptIdentity

LONGEST = timedelta(minutes=1)
"""Clocks are set and machines sleep: look that often."""
SHORTEST = timedelta(seconds=0.1)

log = logging.getLogger(__name__)


async def run(kept: KeptIdentity, listener: Listener, on_authority: Callable[[], None]) -> None:
    """Show what is renewed to all who connect from then on; `on_authority` is called when kubeconfigs change.

    Runs until it is cancelled.
    """
    shown = kept.current
    while True:
        await asyncio.sleep(max(SHORTEST, min(kept.rest(), LONGEST)).total_seconds())
        kept.renew()
        if kept.current == shown:
            continue
        try:
            listener.show(kept.current)
        except OSError as error:  # the ssl module reads keys from files
            log.warning("the certificate cannot be renewed yet: %s", error)
            continue
        old, shown = shown, kept.current
        if shown.authority != old.authority:
            on_authority()
