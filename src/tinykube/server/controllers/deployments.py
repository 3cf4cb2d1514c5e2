"""A Deployment has one ReplicaSet for each template it ever had; the one of today's template gets the pods.

    template changed ──> new ReplicaSet, empty ──> it grows, older ones shrink, within maxSurge and maxUnavailable

`pod-template-hash` in the labels of a ReplicaSet and of its pods tells them apart from those of other templates.
"""

from __future__ import annotations

import math
from typing import Any

from tinykube.server import digits
from tinykube.server.controllers.owners import Owners, condition, fingerprint, has_ended, is_going, moment
from tinykube.server.kinds import DEPLOYMENT, REPLICA_SET

Json = dict[str, Any]

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MOST = "deployment.kubernetes.io/max-replicas"
# What is said of a Deployment only, not of its ReplicaSets.
_OWN = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, _DESIRED, _MOST)


def sync(owners: Owners, deployment: Json) -> float | None:
    """Make things as a Deployment wants them; gives the seconds after which to look again."""
    sets = owners.owned(deployment, REPLICA_SET)
    new = _today(deployment, sets)
    if not is_going(deployment):
        if not deployment["spec"].get("paused"):
            if new is None:
                new = _create(owners, deployment)
                if new is None:
                    return 0.0  # its name was taken; the next one will be another
            deployment, new = _number(owners, deployment, new, sets)
            old = [each for each in sets if each["metadata"]["name"] != new["metadata"]["name"]]
            if deployment["spec"]["strategy"]["type"] == "Recreate":
                _recreate(owners, deployment, new, old)
            else:
                _roll(owners, deployment, new, old)
            _forget(owners, deployment, old)
        elif sets:  # paused: nothing is replaced, but as many are there as are wanted
            _scale(owners, deployment, new or sets[-1], deployment["spec"]["replicas"])
    return _report(owners, deployment)


def _today(deployment: Json, sets: list[Json]) -> Json | None:
    """The ReplicaSet of today's template."""
    for each in sets:
        template = each["spec"]["template"]
        labels = {key: value for key, value in template["metadata"].get("labels", {}).items() if key != HASH}
        if {**template, "metadata": {**template["metadata"], "labels": labels}} == deployment["spec"]["template"]:
            return each
    return None


def _create(owners: Owners, deployment: Json) -> Json | None:
    """The new ReplicaSet, without pods yet; None if another object has its name."""
    spec, status = deployment["spec"], deployment["status"]
    collisions = status.get("collisionCount", 0)
    content = [spec["template"], collisions] if collisions else spec["template"]
    mark = {HASH: fingerprint(content)}
    name = f"{deployment['metadata']['name']}-{mark[HASH]}"
    if owners.store.get(REPLICA_SET, deployment["metadata"]["namespace"], name) is not None:
        owners.report(DEPLOYMENT, deployment, {**status, "collisionCount": collisions + 1})
        return None
    template = spec["template"]
    labels = {**template["metadata"].get("labels", {}), **mark}
    selector = {**spec["selector"], "matchLabels": {**spec["selector"].get("matchLabels", {}), **mark}}
    made = owners.make(
        deployment,
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": 0,
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": selector,
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        },
        REPLICA_SET,
    )
    now = owners.registry.now()
    message = f'Created new replica set "{name}"'
    owners.report(DEPLOYMENT, deployment, {
        **status, "conditions": _progress(status.get("conditions", []), now, "True", "NewReplicaSetCreated", message)
    })  # fmt: skip
    return made


def _number(owners: Owners, deployment: Json, new: Json, sets: list[Json]) -> tuple[Json, Json]:
    """Give the new ReplicaSet the next number, and note in both what they are to know of each other."""
    others = [_revision(each) for each in sets if each["metadata"]["name"] != new["metadata"]["name"]]
    number = max(_revision(new), max(others, default=0) + 1)
    given, replicas = deployment["metadata"].get("annotations", {}), deployment["spec"]["replicas"]
    noted = {
        **new["metadata"].get("annotations", {}),
        **{key: value for key, value in given.items() if key not in _OWN},
        REVISION: str(number),
        _DESIRED: str(replicas),
        _MOST: str(replicas + _limits(deployment)[1]),
    }
    spec = {**new["spec"], "minReadySeconds": deployment["spec"].get("minReadySeconds", 0)}
    if not spec["minReadySeconds"]:
        del spec["minReadySeconds"]
    new = owners.change(REPLICA_SET, new, annotations=noted, spec=spec)
    current = owners.store.get(DEPLOYMENT, deployment["metadata"]["namespace"], deployment["metadata"]["name"])
    return owners.change(DEPLOYMENT, current or deployment, annotations={**given, REVISION: str(number)}), new


def _revision(replica_set: Json) -> int:
    text = replica_set["metadata"].get("annotations", {}).get(REVISION, "")
    return max(0, digits.whole(text) or 0)


def _limits(deployment: Json) -> tuple[int, int]:
    """How many pods may be missing, and how many may be too many, while they are replaced."""
    rolling, replicas = deployment["spec"]["strategy"].get("rollingUpdate"), deployment["spec"]["replicas"]
    if not rolling:
        return 0, 0

    def share(value: int | str, rounded: Any) -> int:
        return int(rounded(int(value[:-1]) * replicas / 100)) if isinstance(value, str) else value

    missing, surplus = share(rolling["maxUnavailable"], math.floor), share(rolling["maxSurge"], math.ceil)
    return min(missing or (0 if surplus else 1), replicas), surplus


def _recreate(owners: Owners, deployment: Json, new: Json, old: list[Json]) -> None:
    """All old pods end before a new one begins."""
    for each in old:
        _scale(owners, deployment, each, 0)
    if not any(not has_ended(pod) for each in old for pod in owners.owned(each)):
        _scale(owners, deployment, new, deployment["spec"]["replicas"])


def _roll(owners: Owners, deployment: Json, new: Json, old: list[Json]) -> None:
    """Grow the new ReplicaSet and shrink the old ones as far as the limits allow at this moment."""
    replicas, (missing, surplus) = deployment["spec"]["replicas"], _limits(deployment)
    total = sum(each["spec"]["replicas"] for each in (new, *old))
    room = max(0, replicas + surplus - total)
    new = _scale(owners, deployment, new, min(replicas, new["spec"]["replicas"] + room))
    total = sum(each["spec"]["replicas"] for each in (new, *old))
    least = replicas - missing
    # Those that are wanted but not available yet are no reason to let others go.
    spare = total - least - (new["spec"]["replicas"] - new["status"].get("availableReplicas", 0))
    shrunk = []
    for each in old:  # the pods that do no work go first
        useless = max(0, each["spec"]["replicas"] - each["status"].get("availableReplicas", 0))
        gone = max(0, min(useless, spare))
        spare -= gone
        shrunk.append(_scale(owners, deployment, each, each["spec"]["replicas"] - gone))
    spare = sum(each["status"].get("availableReplicas", 0) for each in (new, *shrunk)) - least
    for each in shrunk:
        gone = max(0, min(each["spec"]["replicas"], spare))
        spare -= gone
        _scale(owners, deployment, each, each["spec"]["replicas"] - gone)


def _scale(owners: Owners, deployment: Json, replica_set: Json, replicas: int) -> Json:
    before, name = replica_set["spec"]["replicas"], replica_set["metadata"]["name"]
    if before == replicas:
        return replica_set
    way = "up" if replicas > before else "down"
    owners.tell(
        deployment, "Normal", "ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {replicas}"
    )
    return owners.change(REPLICA_SET, replica_set, spec={**replica_set["spec"], "replicas": replicas})


def _forget(owners: Owners, deployment: Json, old: list[Json]) -> None:
    """Delete the oldest ReplicaSets that are done with; as many as the limit says are kept for a way back."""
    done = [each for each in old if not each["spec"]["replicas"] and not owners.owned(each) and not is_going(each)]
    excess = len(done) - deployment["spec"]["revisionHistoryLimit"]
    for each in sorted(done, key=_revision)[: max(0, excess)]:
        owners.remove(REPLICA_SET, each)


def _report(owners: Owners, deployment: Json) -> float | None:
    sets = owners.owned(deployment, REPLICA_SET)
    new, replicas = _today(deployment, sets), deployment["spec"]["replicas"]

    def total(key: str) -> int:
        return sum(each["status"].get(key, 0) for each in sets)

    available = total("availableReplicas")
    current = owners.store.get(DEPLOYMENT, deployment["metadata"]["namespace"], deployment["metadata"]["name"])
    before = (current or deployment)["status"]
    status = {
        **{key: before[key] for key in ("collisionCount",) if key in before},
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": total("replicas"),
        "updatedReplicas": new["status"].get("replicas", 0) if new else 0,
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(total("replicas"), replicas) - available),
        "terminatingReplicas": total("terminatingReplicas"),
    }
    now = owners.registry.now()
    enough = available >= replicas - _limits(deployment)[0]
    conditions = _dated(
        before.get("conditions", []), now, "Available", *(
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.") if enough else
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        )
    )  # fmt: skip
    failures = [each for rs in sets for each in rs["status"].get("conditions", ()) if each["type"] == "ReplicaFailure"]
    conditions = [each for each in conditions if each["type"] != "ReplicaFailure"]
    for each in failures[:1]:
        conditions = _dated(conditions, now, "ReplicaFailure", each["status"], *_words(each))
    conditions, again = _judged(owners, deployment, new, {**status, "conditions": conditions}, before)
    owners.report(DEPLOYMENT, deployment, {**status, "conditions": conditions})
    return again


def _judged(
    owners: Owners, deployment: Json, new: Json | None, status: Json, before: Json
) -> tuple[list[Json], float | None]:
    """The conditions with what is to be said of the progress, and when to look at the clock again."""
    conditions, now, replicas = status["conditions"], owners.registry.now(), deployment["spec"]["replicas"]
    known = next((each for each in conditions if each["type"] == "Progressing"), None)
    name = f'ReplicaSet "{new["metadata"]["name"]}"' if new else "Deployment"
    if deployment["spec"].get("paused"):
        return _progress(conditions, now, "Unknown", "DeploymentPaused", "Deployment is paused"), None
    if known and known.get("reason") == "DeploymentPaused":
        conditions = _progress(conditions, now, "Unknown", "DeploymentResumed", "Deployment is resumed")
    settled = known is not None and known.get("reason") == "NewReplicaSetAvailable"
    if settled and status["replicas"] == status["updatedReplicas"]:
        return conditions, None  # a pod that fails later is no rollout
    done = status["updatedReplicas"] == status["replicas"] == status["availableReplicas"] == replicas
    if done and new is not None:
        message = f"{name} has successfully progressed."
        return _progress(conditions, now, "True", "NewReplicaSetAvailable", message), None
    if _advances(status, before):
        return _progress(conditions, now, "True", "ReplicaSetUpdated", f"{name} is progressing."), _deadline(deployment)
    progress = next((each for each in conditions if each["type"] == "Progressing"), {"lastUpdateTime": now})
    left = moment(progress.get("lastUpdateTime"), deployment) + _deadline(deployment) - owners.now
    if left > 0:
        return conditions, left
    message = f"{name} has timed out progressing."
    return _progress(conditions, now, "False", "ProgressDeadlineExceeded", message), None


def _deadline(deployment: Json) -> float:
    return float(deployment["spec"]["progressDeadlineSeconds"])


def _advances(status: Json, before: Json) -> bool:
    def old(each: Json) -> int:
        return int(each.get("replicas", 0) - each.get("updatedReplicas", 0))

    more = any(status[key] > before.get(key, 0) for key in ("updatedReplicas", "readyReplicas", "availableReplicas"))
    return more or old(status) < old(before)


def _progress(conditions: list[Json], now: str, status: str, reason: str, message: str) -> list[Json]:
    known = next((each for each in conditions if each["type"] == "Progressing"), None)
    if known is not None and reason == known.get("reason") and reason != "ReplicaSetUpdated":
        return conditions
    return _dated(conditions, now, "Progressing", status, reason, message)


def _words(condition: Json) -> tuple[str, str]:
    """Reason and message of a condition, which need not have any."""
    return condition.get("reason", ""), condition.get("message", "")


def _dated(conditions: list[Json], now: str, type: str, *values: str) -> list[Json]:
    """Conditions with one of them set, that says when it was written."""
    known = next((each for each in conditions if each["type"] == type), None)
    if known is not None and type != "Progressing" and (known["status"], *_words(known)) == values:
        return conditions
    *others, made = condition(conditions, now, type, *values)
    return [*others, {**made, "lastUpdateTime": now}]
