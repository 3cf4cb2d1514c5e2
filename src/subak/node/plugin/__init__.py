"""Nodes without NRI: cards by kubelet's device-plugin API, and no guess whose they are.

    admission   gives each container that asks for cards one `subak.io/slot`, and variables that refer to annotations
    Binding     carries those annotations: kubelet itself resolves them, for the pod that it starts
    Allocate    kubelet does not say for whom: it gets the slot's folder as mounts, and the folder is closed
    PreStart    by now kubelet knows which container has the slot, and says so (`podresources`).  The node's arbiter
                decides, and the folder is opened: from now on it leads to that container's own limits and region

A slot names no card.  A closed folder lets no container start, so a container that the arbiter has not seen, or has
refused, does not run.  `slots` keeps the folders, `gate` decides, `service` speaks kubelet's API, `registration` finds
kubelet whenever it starts.  Only this room imports grpc, which is slow to load: import it when it is needed.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or grpc writes of every connection that ends to standard error
