"""`python launcher CONTROL ORDER`: run a container; both are open descriptors, see `monitor`."""

from __future__ import annotations

import os
import socket
import sys

if __name__ == "__main__":
    # As a top-level package: the packages around it would import much that is not needed here.
    sys.path[0] = os.path.dirname(sys.path[0])
    monitor = __import__("launcher.monitor", fromlist=["main"])
    control, order = (int(argument) for argument in sys.argv[1:])
    for descriptor in (control, order):
        os.set_inheritable(descriptor, False)
    monitor.main(socket.socket(fileno=control), order)
