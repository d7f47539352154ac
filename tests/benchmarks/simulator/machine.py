"""What is simulated of an engine: how long its steps take, and what fits into it."""

from __future__ import annotations

from dataclasses import dataclass

from inference.step_model import Step, StepModel

# Steps of these sizes teach a model what the machine's take.
_ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
_PREFILLS = (0, 16, 64, 256, 1024, 4096)
_CONTEXTS = (0, 256, 1024)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An engine on its hardware. Times are in seconds.

    A step takes `base_s`, and so much more for each row that decodes, each token of a prompt and
    each token of context that is read; `noise` is the deviation of a step's time, as a share of it.
    `step_tokens` is the most that a step computes (vLLM's `max_num_batched_tokens`). One that
    `plans_ahead` plans a step while the one before it runs (vLLM's `async_scheduling`): what comes
    meanwhile has no part in either.
    """

    name: str
    base_s: float
    row_s: float
    token_s: float
    context_s: float
    places: int
    kv_tokens: int
    step_tokens: int
    plans_ahead: bool = False
    noise: float = 0.0

    def step_s(self, step: Step) -> float:
        """Return how long a step takes, without noise."""
        return (
            self.base_s
            + self.row_s * step.rows
            + self.token_s * step.prefill_tokens
            + self.context_s * step.context_tokens
        )

    def cost_s(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return what a request costs an engine that is full: its share of each step."""
        context_tokens = prompt_tokens + output_tokens / 2
        decode_s = self.base_s / self.places + self.row_s + self.context_s * context_tokens
        return prompt_tokens * self.token_s + output_tokens * decode_s

    def learned(self) -> StepModel:
        """Return a model that has seen steps of all sizes of this machine."""
        model = StepModel()
        for rows in _ROWS:
            for prefill in _PREFILLS:
                for context in _CONTEXTS:
                    if (rows or prefill) and rows <= self.places:
                        step = Step(rows, prefill, rows * context)
                        model.learn(step, self.step_s(step))
        return model


CPU = Machine(
    name="cpu",
    base_s=0.058,
    row_s=0.0036,
    token_s=0.0025,
    context_s=0.0,
    places=32,
    kv_tokens=23_000,
    step_tokens=2048,
)
# An 8B model in bfloat16 on one H200. 16 GB of weights at 4.8 TB/s; 128 KiB of KV cache for each
# token of context at the same; 2 * 8e9 operations for each token of a prompt at half of 989
# TFLOPS. Sampling and bookkeeping are taken to cost 20 us a row.
H200_8B = Machine(
    name="h200-8b",
    base_s=0.0033,
    row_s=2e-5,
    token_s=3.2e-5,
    context_s=2.7e-8,
    places=256,
    kv_tokens=900_000,
    step_tokens=8192,
    plans_ahead=True,
)
MACHINES = {machine.name: machine for machine in (CPU, H200_8B)}
