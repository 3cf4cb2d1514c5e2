"""`subak explain`: why each node takes or refuses a pod."""

from __future__ import annotations

import sys
from typing import Any

import click

from subak.cli.cluster import Cluster
from subak.cli.connection import exit_code, opened, which_cluster
from subak.cli.live import picture
from subak.cli.options import check_stdin, config_option, files_option, interpreter, output_option
from subak.cli.queue import Outcome, admitted, pods
from subak.cli.report import as_data
from subak.cli.say import complain, emit
from subak.model import manifest
from subak.policy.explain import Explanation


@click.command()
@files_option
@click.option(
    "--cluster", multiple=True, metavar="FILE",
    help="The cluster in files, instead of a live one: Nodes, Koordinator Devices, ResourceQuotas, running Pods.",
)  # fmt: skip
@config_option
@output_option
@which_cluster
def explain(
    files: tuple[str, ...],
    cluster: tuple[str, ...],
    device_config: str | None,
    output: str,
    path: str | None,
    context: str,
    namespace: str,
) -> None:
    """Say for each pod which nodes fit and what keeps it off the others, with numbers.

    Each pod is looked at alone, against the pods that already run; nothing is placed.  The pod need not exist: this
    is how to try a request before it is sent.

    \b
    Examples:
      subak explain -f pod.yaml                          on the live cluster
      subak explain -f pod.yaml --cluster nodes.yaml     on a cluster in files

    \b
    Exit codes:
      0  every pod fits somewhere
      1  some pod fits nowhere
      2  bad input
    """
    check_stdin(files, cluster)
    if cluster:
        sys.exit(_explain(Cluster.from_files(interpreter(device_config), cluster), files, output))
    given = interpreter(device_config) if device_config else None

    async def live() -> int:
        async with opened(path, context, namespace) as connection:
            world = (await picture(connection.client, given)).cluster
            return _explain(world, files, output, connection.namespace)

    sys.exit(exit_code(live))


def _explain(world: Cluster, files: tuple[str, ...], output: str, namespace: str = "") -> int:
    """Explain all pods of the files; gives the exit code."""
    outcome = Outcome()
    answers = [
        (pod, world.explain(complete))
        for pod in pods(files, outcome, namespace)
        if (complete := admitted(world, pod, outcome)) is not None
    ]
    errors = world.errors + outcome.errors
    complain(errors, world.warnings, outcome.notes)
    if output in ("json", "yaml"):
        emit(
            {"explained": [answer_data(*answer) for answer in answers], "rejected": as_data(outcome)["rejected"]},
            output,
        )
    else:
        for pod, answer in answers:
            show_answer(pod, answer, wide=output == "wide")
        complain(f"pod {each.namespace}/{each.name}: {each.message} ({each.field})" for each in outcome.rejected)
    if errors or outcome.rejected:
        return 2
    return 0 if all(answer.fitting for _, answer in answers) else 1


def answer_data(pod: manifest.Pod, answer: Explanation) -> dict[str, Any]:
    """An explanation as data for scripts."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "message": str(answer),
        "fitting": list(answer.fitting),
        "groups": [
            {"reason": str(group.reason), "detail": group.detail, "nodes": list(group.nodes)} for group in answer.groups
        ],
    }


def show_answer(pod: manifest.Pod, answer: Explanation, wide: bool) -> None:
    """Print an explanation for people."""
    click.echo(f"{pod.key}: {len(answer.fitting):,} of {answer.nodes:,} nodes fit")
    if answer.fitting:
        click.echo(f"  fits: {_few(answer.fitting, wide)}")
    for group in answer.groups:
        click.echo(f"  {group}")
        click.echo(f"    {_few(group.nodes, wide)}")


def _few(names: tuple[str, ...], wide: bool) -> str:
    shown = names if wide else names[:5]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more (-o wide shows all)" if rest else "")
