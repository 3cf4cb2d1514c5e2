"""Single containers as processes of this machine, without images and without root.

    Namespaces ── order ──> monitor ── forks ──> init (process 1 of the container) ── forks ──> the command
         ^                  │ (host side)          in its own user, mount, pid, uts and ipc namespaces,
         │                  │                      on a private view of the machine
      Container <── socket ─┘ writes the log, starts further programs, ends everything if we die

`spec` is the contract.  The code of the monitor and of process 1 is in `launcher/`; the rest runs in our process:
`machine` says what a container sees, `filter` what it may call, `cgroups` how much it may use, and `sealed` keeps the
interpreter that launches it out of its reach.
"""
