"""The loop: events in, instructions out.

`Core` is a plain object without I/O and without a clock.  Whoever runs it (a controller on Kubernetes, one machine
without it, a test, a simulation) feeds it what happened and carries out what it says:

    PodSeen, PodGone, NodeSeen, NodeGone, DeviceSeen, ... ── handle ──> Core ── cycle(now) ──> Bind, Report
                                                                          ^                       |
                                                                          └────── BindFailed ─────┘

`Service` runs it on an API server: `feed` tells the core, `binder`, `locks` and `reporter` do what it says.
"""
