"""What jobs that were let in were promised, as far as they say what they need at least (`Job.min_resources`)."""

from __future__ import annotations

from subak.batch.amounts import Amounts, excess
from subak.batch.world import Job, Phase


def promised(job: Job) -> Amounts:
    """What counts for a job when others want to be let in: its minimum, or as much of it as it holds.

    What a job holds beyond its minimum is elastic, and does not count.
    """
    if job.min_resources is None:
        return {}
    if _comes(job):
        return job.min_resources
    return {name: min(amount, job.held.get(name, 0)) for name, amount in job.min_resources.items()}


def lacking(job: Job) -> Amounts:
    """What a job that was let in has not got yet of its minimum."""
    return excess(job.min_resources, job.held) if job.min_resources is not None and _comes(job) else {}


def _comes(job: Job) -> bool:
    """Whether the job will take all of its minimum.  It will not if it runs, but some of its tasks have ended."""
    return job.phase is Phase.INQUEUE or (job.phase is Phase.RUNNING and job.ready_count >= job.min_member)
