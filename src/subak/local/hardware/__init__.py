"""Cards of this cluster: described in a small YAML or found in the machine, and the part of the vendors' software.

    hardware.yaml ── profiles ──┐                  ┌── nodes: Node, Device and Lease objects, kept Ready
                                ├──> Machine ── objects
    this computer ──── nvml ────┘                  └── agents: each container's share, after binding

`plugins` knows what each vendor's device plugin publishes on its node and what it writes on a pod that it has served.
A simulated node tells the cluster the same as a real one; only the cards are missing.
"""
