"""The model catalogue's table: what this install serves, and how."""

from __future__ import annotations

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models


class Model(models.Model):
    """One model that callers can name. Seen by the rest of the code as a `ModelEntry`."""

    class Backend(models.TextChoices):
        """What runs the model."""

        VLLM = "vllm", "vLLM engine"
        SCRIPTED = "scripted", "Scripted engine (tests)"

    id = models.CharField(
        primary_key=True,
        max_length=200,
        validators=[RegexValidator(r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$")],
        help_text="The name that callers use. Matched without regard to case.",
    )
    display_name = models.CharField(max_length=200, blank=True)
    aliases = models.JSONField(
        default=list, blank=True, help_text="Other names for it, as a JSON list of strings."
    )
    backend = models.CharField(max_length=20, choices=Backend, default=Backend.VLLM)
    weights = models.CharField(
        max_length=500,
        blank=True,
        help_text="Folder with the weights; a relative path starts at DATA_DIR/models.",
    )
    context_tokens = models.PositiveIntegerField(
        validators=[MinValueValidator(1)], help_text="Prompt and answer together, in tokens."
    )
    capacity = models.PositiveIntegerField(
        default=32,
        validators=[MinValueValidator(1)],
        help_text="Requests that one engine runs at the same time.",
    )
    max_waiting = models.PositiveIntegerField(
        default=256,
        validators=[MinValueValidator(1)],
        help_text="Realtime requests that may wait for an engine; more are refused with 529.",
    )
    workers = models.PositiveIntegerField(
        default=1, help_text="Engine workers that serve starts for it on one machine."
    )
    engine_options = models.JSONField(
        default=dict,
        blank=True,
        help_text="Options of the backend, such as vLLM's engine arguments, as a JSON object.",
    )
    canary_prompt = models.TextField(
        blank=True, help_text="Asked at temperature 0 when an engine starts. Empty: no check."
    )
    canary_expect = models.CharField(
        max_length=500,
        blank=True,
        help_text="Text that the canary's answer must contain, or the engine does not serve.",
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Listed by name."""

        ordering = ["id"]

    def __str__(self) -> str:
        return self.id
