"""The switch of reasoning in Anthropic's shape, which other dialects' callers send too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.dialects.sampling import MAX_INT
from gateway.dialects.validation import WholeNumber, Wire


class Thinking(Wire):
    """The switch of reasoning. `between_tools` leaves it to the model's default."""

    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=1, le=MAX_INT), WholeNumber] | None = None
    """Most tokens of reasoning, where the engine can bound them."""

    @property
    def wanted(self) -> bool | None:
        """Whether the model is to think; None for its default."""
        if self.type == "between_tools":
            return None
        return self.type != "disabled"
