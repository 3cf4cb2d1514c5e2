"""Enqueue: let jobs in that a cluster of this size can be expected to run, queue by queue and job by job.

Until then nobody tries to place them, and Volcano's controllers make no pods for them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from subak.batch.arguments import Arguments
from subak.batch.session import Session
from subak.batch.world import Job, Phase


def enqueue(session: Session, arguments: Arguments) -> None:
    """Run the action.  A job that is rejected stands in nobody's way."""
    lines: dict[str, list[Job]] = {}
    for job in session.jobs():
        if job.phase is Phase.PENDING:
            lines.setdefault(job.queue, []).append(job)
    for line in lines.values():
        line.sort(key=session.job_rank, reverse=True)
    heap = [(session.queue_rank(queue), queue) for queue in map(session.world.queues.__getitem__, lines)]
    heapify(heap)
    while heap:
        _, queue = heappop(heap)
        job = lines[queue.name].pop()
        if job.min_resources is None or session.enqueueable(job):
            session.enqueue(job)
        if lines[queue.name]:
            heappush(heap, (session.queue_rank(queue), queue))
