"""The small program around each container; it starts in some 20 ms and imports nothing of Subak.

One process stays outside (`monitor`), one is process 1 inside (`init`); `view` builds what the container sees,
`volumes` puts its mounts in place, `program` turns a process into the requested program.  `order` defines the messages
between them, `allowance` says what a container may take of what the kernel counts for each user, and `terminal` gives
further programs a terminal.
"""
