"""The loop: events in, instructions out.

`Core` is a plain object without I/O and without a clock.  Its driver (a controller on Kubernetes, a single machine, a
test, a simulation) feeds it events and carries out its instructions:

    PodSeen, PodGone, NodeSeen, NodeGone, DeviceSeen, ... ── handle ──> Core ── cycle(now) ──> Bind, Report
                                                                          ^                       |
                                                                          └────── BindFailed ─────┘

`Service` runs it on an API server: `feed` delivers events; `binder`, `locks`, `reporter` and `restorer` carry out
instructions.
"""
