"""The helper program: starts commands, watches over them, leaves nothing of them behind.

It is run by `dsh.process._launcher` as a separate interpreter (`-I -S`, empty environment). What
stands in this folder imports only the standard library and each other, which the gate `workspace`
sees to. One process of it serves a whole harness and plays two roles:

- the **root** waits on one socket. Each message is one byte with descriptors attached (SCM_RIGHTS):
  the command's control socket first, its standard streams after it. Each goes to a monitor, one
  that waits for it where possible: forking an interpreter is most of what a command costs.
- a **monitor** reads what to run from the control socket, starts it in a session of its own,
  reports, and stays until no process of the command is left; then it waits for the next one, or
  ends where enough others wait. On Linux it is a child subreaper: whatever daemonises itself is
  re-parented to the monitor, never lost.

Both end the command when the other side is gone: the control socket reports EOF, and (Linux) a
pidfd of the harness becomes readable. Should a monitor be killed, the root adopts and kills what
it watched. Elsewhere than on Linux an escaped daemon is found by the mark in its environment.

The control socket carries JSON lines. To the monitor: the request, then `{"op": "kill", "grace"}`,
`{"op": "signal", "number"}`, `{"op": "count"}`. From the monitor: `{"ev": "started", "pid"}` or
`{"ev": "failed", "step", "errno", "what"}`; `{"ev": "exit", "status", "left", "killed"}`;
`{"ev": "count", "left"}`; `{"ev": "gone"}`.
"""
