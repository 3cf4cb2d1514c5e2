"""Simulated cards, described in a small YAML, and the part that kubelet and the vendors' agents play around any card.

    hardware.yaml ── profiles ──┐                       ┌── nodes: Node, Device and Lease objects, kept Ready
                                ├──> node.Machine ── objects
    this computer ── node.nvml ─┘                       └── agents: the node's arbiter, and what agents write

A simulated node tells the cluster the same as a real one.  Its cards are missing; NVIDIA's have a simulated `driver`,
so that programs can use them.
"""
