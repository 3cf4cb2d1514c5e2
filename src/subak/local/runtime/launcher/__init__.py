"""The small program around each container; it starts in some 20 ms and imports nothing of Subak.

One process stays outside (`monitor`), one is process 1 inside (`init`); `view` builds what the container sees,
`program` turns a process into the one that was asked for.  `order` is what they are told and what they answer.
"""
