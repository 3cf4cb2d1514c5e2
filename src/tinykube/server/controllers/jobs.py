"""A Job has pods until enough of them have ended well, or too many have failed, or its time is up.

Every pod that ended is counted once, whatever happens in between: it carries a finalizer until it is counted.  Its uid
is first noted in the status (`uncountedTerminatedPods`), then the finalizer goes, then the note becomes a number.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.controllers.owners import (
    BURST,
    Owners,
    condition,
    ended_at,
    is_active,
    is_going,
    is_ready,
    moment,
    owner_of,
    pause_after,
    soonest,
)
from tinykube.server.controllers.replica_sets import RETRY_SECONDS
from tinykube.server.kinds import JOB, POD
from tinykube.status import ApiError

Json = dict[str, Any]

TRACKED = "batch.kubernetes.io/job-tracking"
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Between a pod that failed and the next one."""

_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
_EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_LATE = ("DeadlineExceeded", "Job was active longer than specified deadline")


def sync(owners: Owners, job: Json) -> float | None:
    """Make things as a Job wants them; gives the seconds after which to look again."""
    if is_going(job) or _verdict(job, "Complete", "Failed"):
        for pod in owners.owned(job):
            _release(owners, pod)
        return None if is_going(job) else _expire(owners, job)
    if not job["status"].get("startTime"):
        job = owners.report(JOB, job, {**job["status"], "startTime": owners.registry.now()})
    job = _count(owners, job)
    verdict, left = _judge(owners, job)
    again = None
    if verdict is not None:
        _end(owners, job)
    else:
        try:
            again = _balance(owners, job)
        except ApiError:  # an event says so
            again = RETRY_SECONDS
    _report(owners, job, verdict)
    return soonest(again, left)


def is_stranded(owners: Owners, pod: Json) -> bool:
    """Whether a pod waits to be counted by a Job that is gone."""
    if TRACKED not in pod["metadata"].get("finalizers", ()):
        return False
    job = owner_of(pod)
    return job is None or owners.store.get(*job) is None


def free(owners: Owners, pod: Json) -> None:
    """Let a pod go that no Job will count."""
    if is_stranded(owners, pod):
        _release(owners, pod)


def _verdict(job: Json, *types: str) -> Json | None:
    """The condition that has decided, if there is one."""
    given = job["status"].get("conditions", ())
    return next((each for each in given if each["type"] in types and each["status"] == "True"), None)


def _failed(pod: Json, job: Json) -> bool:
    """A pod that is deleted before it ended has failed, unless only those count that really have."""
    phase = pod["status"].get("phase")
    return phase == "Failed" or (
        is_going(pod) and phase != "Succeeded" and job["spec"]["podReplacementPolicy"] != "Failed"
    )


def _count(owners: Owners, job: Json) -> Json:
    """Count the pods that have ended since the last time."""
    status = dict(job["status"])
    noted = {key: list(status.get("uncountedTerminatedPods", {}).get(key, ())) for key in ("succeeded", "failed")}
    pods = {
        pod["metadata"]["uid"]: pod for pod in owners.owned(job) if TRACKED in pod["metadata"].get("finalizers", ())
    }
    for uid, pod in pods.items():
        key = "succeeded" if pod["status"].get("phase") == "Succeeded" else "failed" if _failed(pod, job) else ""
        if key and uid not in noted["succeeded"] + noted["failed"]:
            noted[key].append(uid)
    if not noted["succeeded"] and not noted["failed"]:
        return job
    job = owners.report(JOB, job, {**status, "uncountedTerminatedPods": noted})
    for uid in noted["succeeded"] + noted["failed"]:
        if uid in pods:
            _release(owners, pods[uid])
    counted = {key: status.get(key, 0) + len(uids) for key, uids in noted.items()}
    return owners.report(JOB, job, {**job["status"], **counted, "uncountedTerminatedPods": {}})


def _release(owners: Owners, pod: Json) -> None:
    finalizers = pod["metadata"].get("finalizers", [])
    if TRACKED in finalizers:
        owners.change(POD, pod, finalizers=[each for each in finalizers if each != TRACKED])


def _judge(owners: Owners, job: Json) -> tuple[tuple[str, str, str] | None, float | None]:
    """What there is to say about a Job that has come to its end, or the seconds until its time is up."""
    decided = _verdict(job, "SuccessCriteriaMet", "FailureTarget")
    if decided is not None:
        return (decided["type"], decided.get("reason", ""), decided.get("message", "")), None
    spec, status, pods = job["spec"], job["status"], owners.owned(job)
    active = [pod for pod in pods if is_active(pod)]
    succeeded, left = status.get("succeeded", 0), None
    if status.get("failed", 0) > spec["backoffLimit"] or _restarted(job, active) > spec["backoffLimit"]:
        return ("FailureTarget", *_EXCEEDED), None
    if "activeDeadlineSeconds" in spec:
        left = moment(status.get("startTime"), job) + spec["activeDeadlineSeconds"] - owners.now
        if left <= 0:
            return ("FailureTarget", *_LATE), None
    if "completions" in spec:
        reached = succeeded >= spec["completions"]
    else:
        reached = bool(succeeded) and not active
    return (("SuccessCriteriaMet", *_REACHED) if reached else None), left


def _restarted(job: Json, active: list[Json]) -> int:
    """How often containers were restarted, where that is the Job's way to try again."""
    if job["spec"]["template"]["spec"]["restartPolicy"] != "OnFailure":
        return 0
    restarts = sum(
        each.get("restartCount", 0)
        for pod in active
        for each in (*pod["status"].get("containerStatuses", ()), *pod["status"].get("initContainerStatuses", ()))
    )
    return int(restarts) + bool(restarts and job["spec"]["backoffLimit"])  # at the limit, not only beyond it


def _balance(owners: Owners, job: Json) -> float | None:
    spec, status, pods = job["spec"], job["status"], owners.owned(job)
    active = [pod for pod in pods if is_active(pod)]
    wanted = spec["parallelism"]
    if "completions" in spec:
        wanted = min(wanted, spec["completions"] - status.get("succeeded", 0))
    elif status.get("succeeded", 0):
        wanted = min(wanted, len(active))  # the work is done: no new pod starts
    leaving = [pod for pod in pods if is_going(pod) and not _over(pod)]
    missing = wanted - len(active) - (len(leaving) if spec["podReplacementPolicy"] == "Failed" else 0)
    for pod in sorted(active, key=lambda pod: (is_ready(pod), pod["metadata"]["name"]))[: max(0, len(active) - wanted)]:
        owners.delete(job, pod)
    if missing <= 0:
        return None
    last = max((ended_at(pod) for pod in pods if pod["status"].get("phase") == "Succeeded"), default=0.0)
    failed = [pod for pod in pods if pod["status"].get("phase") == "Failed" and ended_at(pod) > last]
    pause = pause_after(failed, owners.now, FIRST_PAUSE, LONGEST_PAUSE)
    if pause:
        return pause
    template = spec["template"]
    meta = {**template["metadata"], "generateName": f"{job['metadata']['name']}-", "finalizers": [TRACKED]}
    for _ in range(min(missing, BURST)):
        owners.make(job, {"metadata": meta, "spec": template["spec"]})
    return 0.0 if missing > BURST else None


def _over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _end(owners: Owners, job: Json) -> None:
    """Nothing runs on after the end."""
    for pod in owners.owned(job):
        if is_active(pod):
            owners.delete(job, pod)


def _report(owners: Owners, job: Json, verdict: tuple[str, str, str] | None) -> None:
    job = _count(owners, job) if verdict else job
    pods, now = owners.owned(job), owners.registry.now()
    active = [pod for pod in pods if is_active(pod)]
    leaving = [pod for pod in pods if is_going(pod) and not _over(pod)]
    status = {
        **job["status"],
        "active": len(active),
        "ready": sum(is_ready(pod) for pod in active),
        "terminating": len(leaving),
    }
    status.setdefault("uncountedTerminatedPods", {})
    conditions = status.get("conditions", [])
    if verdict is not None:
        target, reason, message = verdict
        final = "Complete" if target == "SuccessCriteriaMet" else "Failed"
        for type in (target, *([final] if not active and not leaving else ())):
            known = next((each for each in conditions if each["type"] == type), None)
            if known is None:
                conditions = condition(conditions, now, type, "True", reason, message)
                conditions[-1]["lastProbeTime"] = now
        if not active and not leaving:
            if final == "Complete":
                status["completionTime"] = now
                owners.tell(job, "Normal", "Completed", "Job completed")
            else:
                owners.tell(job, "Warning", reason, message)
    owners.report(JOB, job, {**status, "conditions": conditions})


def _expire(owners: Owners, job: Json) -> float | None:
    """Delete a finished Job when its time to live is over."""
    verdict, keep = _verdict(job, "Complete", "Failed"), job["spec"].get("ttlSecondsAfterFinished")
    if verdict is None or keep is None:
        return None
    left = moment(verdict.get("lastTransitionTime"), job) + keep - owners.now
    if left <= 0:
        owners.remove(JOB, job, "Foreground")
        return None
    return float(left)
