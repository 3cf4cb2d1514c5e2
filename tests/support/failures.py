"""The last words of a test run: what failed, and why.

A failed test is shown with the logs of all programs that it started, and whoever runs tests elsewhere may keep only the
end of the output.  So each failure is told once more when all else has been printed: the test, where it was, and the
first lines of its error.  Of a group of exceptions, as tasks raise them, the exceptions inside are told.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

LINES, WIDTH = 60, 160
"""Lines for all failures together, and what is kept of each: so much that it fits into 12,000 characters."""
WHY = "why"

_TESTS = Path(__file__).parent.parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note why the test failed, as a property that workers pass on."""
    report = yield
    if report.failed and call.excinfo is not None:
        report.user_properties.append((WHY, "\n".join(map(_told, _inside(call.excinfo.value)))))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Tell of all failures, after all that others have to say."""
    yield
    failed = [*terminalreporter.getreports("error"), *terminalreporter.getreports("failed")]
    if not failed:
        return
    terminalreporter.write_sep("=", "what failed, and why")
    each = max(2, LINES // len(failed))
    lines = [line for report in failed for line in _words(report, each)]
    for line in lines[:LINES]:
        terminalreporter.write_line(line if len(line) <= WIDTH else f"{line[:WIDTH]} ...")
    if len(lines) > LINES:
        terminalreporter.write_line(f"... and more of {len(failed)} failures")


def _words(report: pytest.CollectReport | pytest.TestReport, most: int) -> Iterator[str]:
    """The test, and the first lines of why it failed; the last ones of what a module or a worker that broke printed."""
    told = dict(getattr(report, "user_properties", ())).get(WHY)
    lines = str(told).splitlines()[: most - 1] if told else report.longreprtext.splitlines()[1 - most :]
    yield f"{report.nodeid} ({report.when})"
    yield from (f"    {line}" for line in lines)


def _inside(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that are no groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _inside(each)
    else:
        yield error


def _told(error: BaseException) -> str:
    """An exception, and the line of a test where it left the tests' own code."""
    told = "".join(traceback.format_exception_only(error)).rstrip()
    ours = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(_TESTS)]
    return f"{Path(ours[-1].filename).relative_to(_TESTS.parent)}:{ours[-1].lineno}: {told}" if ours else told
