"""The options about admission: what they become, and what makes no sense."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
import pytest
from click.testing import CliRunner

from subak.admission.service import Options
from subak.cli.admission import Given, admission_options

SERVED = ("subak", "volcano")


def run(*arguments: str, in_a_pod: bool = True) -> tuple[int, str, Options | None]:
    found: list[Options | None] = []

    @click.command()
    @admission_options
    def command(**given: Any) -> None:
        found.append(Given(**given).options(SERVED, in_a_pod))

    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output, found[0] if found else None


def test_by_default_only_our_own_programs_write_records_and_nothing_is_allowed() -> None:
    _, _, options = run()
    assert options is not None
    assert options.writers.everywhere == {"system:serviceaccount:subak-system:subak-controller"}
    assert options.writers.on_own_node == {"system:serviceaccount:subak-system:subak-agent"}
    assert (options.send_to, options.allowed, options.url, options.port) == ("subak", frozenset(), "", 9443)


def test_vendors_programs_that_stay_may_write_too() -> None:
    agent, scheduler = (f"system:serviceaccount:kube-system:hami-{name}" for name in ("device-plugin", "scheduler"))
    _, _, options = run("--writer", scheduler, "--node-writer", agent, "--allow", "privileged", "--send-to", "")
    assert options is not None
    assert scheduler in options.writers.everywhere
    assert agent in options.writers.on_own_node
    assert (options.send_to, options.allowed) == ("", frozenset({"privileged"}))


@pytest.mark.parametrize(("slots", "prepared"), [("auto", [0, 1]), ("always", [1, 1]), ("never", [0, 0])])
def test_pods_are_prepared_for_nodes_without_nri_if_there_are_any_unless_we_are_told(
    slots: str, prepared: list[int]
) -> None:
    given = Given(None, 9443, "", "subak", (), slots, (), ())
    assert [given.prepares(partial(bool, there))() for there in (0, 1)] == prepared


def test_it_can_be_left_out() -> None:
    assert run("--no-webhook") == (0, "", None)


def test_an_api_server_is_told_only_of_a_webhook_that_it_can_find() -> None:
    assert run(in_a_pod=False) == (0, "", None)
    for arguments in (["--webhook"], ["--webhook-url", "https://10.0.0.1:9443"]):
        assert run(*arguments, in_a_pod=False)[2] is not None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--webhook-url", "http://a"], "an API server calls https:// only"),
        (["--send-to", "hami-scheduler"], "it is none of the names that are served"),
        (["--allow", "everything"], "'everything' is not one of 'privileged', 'disable-control'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], problem: str) -> None:
    code, text, _ = run(*arguments)
    assert code == 2
    assert problem in text
