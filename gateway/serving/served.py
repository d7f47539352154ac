"""One request that was let in, on its way to its answer."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.accounting.desk import Ticket, Visit
from gateway.metrics import count_run
from inference.errors import TandemError
from inference.transport.run import Run


@dataclass(slots=True)
class Served:
    """A request and what became of it. Close it exactly once.

    `run` is that of the model which answers, once a queue has taken it; `error` why none would.
    """

    visit: Visit
    ticket: Ticket
    run: Run | None = None
    error: TandemError | None = None

    def close(self) -> None:
        """Account for the request, however it ended; a run that goes on is cancelled."""
        if self.run is not None:
            self.run.close()
            self.ticket.close(self.run)
            count_run(self.visit.dialect, self.run)
        elif self.error is not None:
            self.ticket.refuse(self.error)
        else:
            # The client has left before.
            self.ticket.abandon()
