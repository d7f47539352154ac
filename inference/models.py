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

    class Reasoning(models.TextChoices):
        """Whether the model thinks before it answers."""

        NONE = "none", "never"
        OPTIONAL = "optional", "when asked to"
        DEFAULT_ON = "default_on", "unless asked not to"
        ALWAYS = "always", "always"

    class ImagesWithoutVision(models.TextChoices):
        """What becomes of images that a model without vision is sent."""

        PLACEHOLDER = "placeholder", "replaced by a note to the model"
        REFUSE = "refuse", "refused with 400"

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
    ttft_target_ms = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Time to the first token that realtime requests are to see whatever work runs "
        "beside them. Empty: ttft_target_factor times that of the idle engine.",
    )
    itl_target_ms = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Time between tokens that they are to see. Empty: itl_target_factor times that "
        "of the idle engine.",
    )
    ttft_target_factor = models.FloatField(default=2.5, validators=[MinValueValidator(1)])
    itl_target_factor = models.FloatField(default=2, validators=[MinValueValidator(1)])
    workers = models.PositiveIntegerField(
        default=1, help_text="Engine workers that serve starts for it on one machine."
    )
    engine_options = models.JSONField(
        default=dict,
        blank=True,
        help_text="Options of the backend, such as vLLM's engine arguments, as a JSON object.",
    )
    kv_offload_gib = models.FloatField(
        default=0,
        validators=[MinValueValidator(0)],
        help_text="Host memory, in GiB for the whole engine, that keeps prefixes which its device "
        "has no more room for. 0: none.",
    )
    kv_offload_dir = models.CharField(
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"^/", "Must be an absolute path.")],
        help_text="Folder that keeps them beyond that, and after the engine's end. It grows "
        "without limit. Empty: none.",
    )
    vision = models.BooleanField(default=False, help_text="The model sees images.")
    images_without_vision = models.CharField(
        max_length=20, choices=ImagesWithoutVision, default=ImagesWithoutVision.PLACEHOLDER
    )
    reasoning = models.CharField(max_length=20, choices=Reasoning, default=Reasoning.NONE)
    reasoning_parser = models.CharField(
        max_length=100, blank=True, help_text="vLLM's parser for what the model thinks."
    )
    tool_parser = models.CharField(
        max_length=100, blank=True, help_text="vLLM's parser for the model's tool calls."
    )
    describe_tools = models.BooleanField(
        default=False,
        help_text="Describe tools in the system turn, in the tool parser's format, because the "
        "chat template cannot.",
    )
    chat_template = models.CharField(
        max_length=500, blank=True, help_text="A template file instead of the model's own."
    )
    default_sampling = models.JSONField(
        default=dict,
        blank=True,
        help_text="temperature, top_p and top_k where a request has none, as a JSON object.",
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
        """Listed by name. What vLLM cannot do with any device is kept out."""

        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kv_offload_dir="") | models.Q(kv_offload_gib__gt=0),
                name="kv_offload_dir_needs_memory",
                violation_error_message="Prefixes reach kv_offload_dir through host memory: it "
                "needs kv_offload_gib.",
            )
        ]

    def __str__(self) -> str:
        return self.id
