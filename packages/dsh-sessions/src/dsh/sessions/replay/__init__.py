"""Playing a stored session again through a whole agent loop, and comparing what comes of it.

`replay_session(events, header, bundle=...)` makes an app of nothing but a bundle and runs the
session in it; `replay_in(app, events, header)` uses an app that is there. Both return a
`ReplayReport`, whose `divergence` names the first event that came out differently.
"""

from dsh.sessions.replay._report import Divergence, ReplayReport
from dsh.sessions.replay._run import replay_in, replay_session

__all__ = ["Divergence", "ReplayReport", "replay_in", "replay_session"]
