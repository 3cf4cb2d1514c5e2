"""The life of pods on the local nodes, as a kubelet leads it.

    pods of our nodes ── watch ──> Kubelet ──> one Worker a pod ──> Runtime (a process a container)
                                                  │   ^
                                       Life (pure)│   │ started, exited, probed
                                                  ▼   │
    status of the pod <── patch ── what is next, what to say

Decisions are pure: `life` says what to start, stop and wait for, `status` what the pod's status is, both from the spec
and what is known of the containers; time is an argument.  A worker only carries out what they say.  Nothing is stored
but the pods' status in the API server: a restarted kubelet reads there what ran before.
"""
