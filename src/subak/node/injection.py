"""What goes into the containers of a pod: what its dialects give them, made ready on this machine.

dialects ── variables, mounts, the shares to hold it to ──┐
isolation ── the file of limits, libsubak everywhere ─────┼──> one Injection a container
machine ── device nodes, and the cards by UUID ───────────┤
host ── where the files of all this are ──────────────────┘
"""

from __future__ import annotations

from subak.dialects import Injection, isolation
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Grant, Placement
from subak.model.reason import Refusal
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.turns import NoTurns


def injections(
    interpreter: Interpreter, machine: Machine, host: Host | None, pod: manifest.Pod, placement: Placement, node: Node
) -> list[Injection]:
    """What each container gets, in the order of `pod.containers`.  Without a host nothing is written to disk.

    Raises Refusal if the files that hold containers to their share cannot be made ready.
    """
    made = interpreter.injections(pod, placement, node)
    for position, injection in enumerate(made):
        injection.mounts += isolation.guard(pod, position, injection)
    if host is not None:
        _lay_out(host, pod, made, node.name)
    for grant in placement.grants if machine.real else ():
        for position in grant.containers:
            _show(made[position], grant, machine)
    return made


def _lay_out(host: Host, pod: manifest.Pod, made: list[Injection], node: str) -> None:
    """Give all mounts their sources on this machine."""
    try:
        for container, injection in zip(pod.containers, made, strict=True):
            injection.mounts = [host.mount(each, pod, container) for each in injection.mounts]
    except NoTurns as error:
        raise Refusal("spec.nodeName", node, f"no limit would hold: {error}") from None
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        message = f"no limit would hold: what is mounted into its containers cannot be made ready: {what}"
        raise Refusal("spec.nodeName", node, message) from None


def _show(injection: Injection, grant: Grant, machine: Machine) -> None:
    """Let a container see real cards: CUDA finds them by UUID, and opens the driver's device nodes."""
    cards = [share.id for share in grant.shares]
    seen = filter(None, injection.env.get(isolation.CUDA_CARDS, "").split(","))
    env = isolation.shown(dict.fromkeys((*seen, *cards)))
    injection.add(Injection(env, devices=[path for id in cards for path in machine.device_files.get(id, ())]))
