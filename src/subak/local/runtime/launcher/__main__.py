"""`python launcher CONTROL ORDER PYTHON CGROUP...`: run a container.

All are open descriptors: of the socket and the file that `monitor` describes, of this interpreter, which is not needed
any more, and of the entrances of cgroups.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # As a top-level package: the packages around it would import much that is not needed here.
    sys.path[0] = os.path.dirname(sys.path[0])
    monitor = __import__("launcher.monitor", fromlist=["main"])
    control, order, python, *cgroups = (int(argument) for argument in sys.argv[1:])
    os.close(python)
    for descriptor in (control, order, *cgroups):
        os.set_inheritable(descriptor, False)
    monitor.main(control, order)
