"""Runs pods on the local nodes, as a kubelet does.

    pods of our nodes ── watch ──> Kubelet ──> one Worker a pod ──> Runtime (a process a container)
                                                  │   ^
                                       Life (pure)│   │ started, exited, probed
                                                  ▼   │
    status of the pod <── patch ── what is next, what to say

Decisions are pure: `life` decides what to start, stop and wait for, and `status` computes the pod's status, both from
the spec and the records of its containers; time is an argument.  A worker only carries out decisions.  Only the pods'
status in the API server is stored: a restarted kubelet reads there what ran before.
"""
