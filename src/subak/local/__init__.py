"""One machine without Kubernetes: an embedded API server, simulated or real cards, and processes as containers.

kubectl, subak ── HTTPS ──> api ── watch ──> scheduler core ── Binding ──> api
                             ^                                              │
                             └─ status ── kubelet (runtime, hardware) <── watch
"""
