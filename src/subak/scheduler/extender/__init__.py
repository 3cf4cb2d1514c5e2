"""Subak behind a kube-scheduler that stays: an extender, on the same core as our own scheduler.

    kube-scheduler ── filter ──> one node, booked ── bind ──> locks, binder ──> Binding
                         │            │
                         │            └── no bind in time, or another filter ──> given up
                         └── none ──> what each node says

kube-scheduler counts everything but cards (`managedResources` with `ignoredByScheduler`), Subak counts cards.
`wire` has what is sent, `extender` decides, `victims` says who must go, `listener` speaks HTTP, and `configuration` is
what kube-scheduler needs to know.
"""
