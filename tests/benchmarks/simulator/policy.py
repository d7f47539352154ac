"""The policies that are compared: who may run, and who paces work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference.admission import Admission
from inference.pace import Targets

Clock = Callable[[], float]


class KeptQuarter(Admission):
    """Work leaves a quarter of all places free at any time, whatever realtime needs."""

    @property
    def kept(self) -> int:
        """Places that the lower lanes leave free, beside those that realtime requests use."""
        return max(1, self.capacity // 4)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How realtime and work share an engine.

    Without an `admission` all work is in the engine, and waits there for its places. With
    `targets` work runs at the pace that realtime leaves it.
    """

    name: str
    realtime: bool = True
    work: bool = True
    admission: Callable[[int, Clock], Admission] | None = Admission
    targets: Targets | None = None


REALTIME_ALONE = Policy(name="realtime alone", work=False)
WORK_ALONE = Policy(name="batch alone, no pace", realtime=False, admission=None)
PACED_WORK_ALONE = Policy(name="batch alone, paced", realtime=False, targets=Targets())
PRIORITY_ONLY = Policy(name="priority only", admission=None)
STATIC_SHARE = Policy(name="static share", admission=KeptQuarter)
PACED = Policy(name="paced", targets=Targets())
