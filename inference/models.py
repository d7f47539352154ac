"""The model catalogue's table: what this install serves, and how."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models

from inference.secret_references import is_reference
from inference.upstreams import KEY_PATTERN, url_fault


def validate_base_url(url: str) -> None:
    """Refuse what is no upstream's address."""
    if fault := url_fault(url):
        raise ValidationError(f"The address {fault}.")


class Upstream(models.Model):
    """A provider of models that others run. Seen by the rest of the code as an `UpstreamEntry`."""

    name = models.CharField(
        primary_key=True,
        max_length=100,
        validators=[RegexValidator(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")],
    )
    base_url = models.CharField(
        max_length=500,
        validators=[validate_base_url],
        help_text="Where its API begins, as its own SDK takes it: https://api.openai.com/v1, but "
        "https://api.anthropic.com.",
    )
    key = models.CharField(
        max_length=500,
        blank=True,
        validators=[
            RegexValidator(
                KEY_PATTERN,
                "Must be ${env:NAME} or ${file:/path}: the key itself is not kept here.",
            )
        ],
        help_text="Where the engine worker finds its key: ${env:NAME} or ${file:/path}. Empty: it "
        "needs none.",
    )
    connect_timeout_s = models.FloatField(default=10, validators=[MinValueValidator(0.1)])
    read_timeout_s = models.FloatField(
        default=300,
        validators=[MinValueValidator(0.1)],
        help_text="Longest silence before an answer and within it.",
    )
    retries = models.PositiveIntegerField(
        default=2,
        help_text="How often a realtime request is tried again before the answer begins. Work of "
        "batches is, until its deadline.",
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Most requests that one engine worker sends within a minute, of each model. "
        "Empty: no limit.",
    )

    class Meta:
        """Listed by name."""

        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


def validate_secrets(secrets: object) -> None:
    """Refuse what is no object of references to secrets: secrets themselves are not kept here."""
    if not isinstance(secrets, dict) or not all(
        isinstance(text, str) and is_reference(text) for text in secrets.values()
    ):
        raise ValidationError(
            "Must be a JSON object whose values refer to secrets, such as "
            '{"Authorization": "Bearer ${env:TOKEN}"} or {"TOKEN": "${file:/run/secrets/token}"}.'
        )


def validate_names(names: object) -> None:
    """Refuse what is no list of texts."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValidationError('Must be a JSON list of texts, such as ["one", "two"].')


class McpServer(models.Model):
    """An MCP server whose tools models may call. Elsewhere it is an `McpServerEntry`."""

    class Transport(models.TextChoices):
        """How it is talked with."""

        BUILTIN = "builtin", "Built in: the time, and arithmetic"
        STDIO = "stdio", "A program that the engine worker starts"
        HTTP = "http", "Streamable HTTP"

    name = models.CharField(
        primary_key=True,
        max_length=64,
        validators=[RegexValidator(r"^[A-Za-z0-9][A-Za-z0-9_-]*$")],
        help_text="What callers see as the server's name.",
    )
    transport = models.CharField(max_length=20, choices=Transport, default=Transport.STDIO)
    command = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_names],
        help_text="The program and its arguments, each on a line of its own.",
    )
    url = models.CharField(
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"^https?://[^@/]+(/\S*)?$", "Must be an http or https URL.")],
        help_text="Where it is reached over HTTP.",
    )
    secrets = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_secrets],
        help_text="Headers over HTTP, else variables of the program's environment, as a JSON "
        "object. Each says where its secret is: ${env:NAME} or ${file:/path}, with any text "
        "around it.",
    )
    allowed_tools = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_names],
        help_text="The tools that models may call, one name on each line. Empty: all.",
    )
    timeout_s = models.FloatField(
        default=30, validators=[MinValueValidator(0.1)], help_text="Longest time for one call."
    )
    max_output_bytes = models.PositiveIntegerField(
        default=65_536,
        validators=[MinValueValidator(1)],
        help_text="What a call may come to; the rest is cut off.",
    )
    enabled = models.BooleanField(default=True)

    class Meta:
        """Listed by name."""

        ordering = ["name"]
        verbose_name = "MCP server"

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a server that cannot be reached the way it says."""
        super().clean()
        if self.transport == self.Transport.STDIO and not self.command:
            raise ValidationError({"command": "A program needs its command."})
        if self.transport == self.Transport.HTTP and not self.url:
            raise ValidationError({"url": "A server that is reached over HTTP needs its URL."})


class Model(models.Model):
    """One model that callers can name. Seen by the rest of the code as a `ModelEntry`."""

    class Backend(models.TextChoices):
        """What runs the model."""

        VLLM = "vllm", "vLLM engine"
        OPENAI = "openai", "Upstream that speaks OpenAI's API"
        ANTHROPIC = "anthropic", "Upstream that speaks Anthropic's API"
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
        default=list,
        blank=True,
        help_text="Other names that callers may use for it, one on each line. Matched without "
        "regard to case.",
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
        "time to first token, target in ms",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Time to the first token that realtime requests are to see whatever work runs "
        "beside them. Empty: the factor times that of the idle engine.",
    )
    itl_target_ms = models.PositiveIntegerField(
        "time between tokens, target in ms",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Time between tokens that they are to see. Empty: the factor times that of the "
        "idle engine.",
    )
    ttft_target_factor = models.FloatField(
        "time to first token, factor", default=2.5, validators=[MinValueValidator(1)]
    )
    itl_target_factor = models.FloatField(
        "time between tokens, factor", default=2, validators=[MinValueValidator(1)]
    )
    workers = models.PositiveIntegerField(
        default=1, help_text="Engine workers that serve starts for it on one machine."
    )
    engine_options = models.JSONField(
        default=dict,
        blank=True,
        help_text="Options of the backend, such as vLLM's engine arguments, as a JSON object.",
    )
    kv_offload_gib = models.FloatField(
        "host memory, in GiB",
        default=0,
        validators=[MinValueValidator(0)],
        help_text="Host memory, in GiB for the whole engine, that keeps prefixes which its device "
        "has no more room for. 0: none.",
    )
    kv_offload_dir = models.CharField(
        "folder",
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"^/", "Must be an absolute path.")],
        help_text="Folder that keeps them beyond that, and after the engine's end. It grows "
        "without limit. Empty: none.",
    )
    upstream = models.ForeignKey(
        Upstream, on_delete=models.PROTECT, null=True, blank=True, related_name="models"
    )
    upstream_model = models.CharField(
        max_length=200, blank=True, help_text="Its name there. Empty: the same as here."
    )
    upstream_options = models.JSONField(
        default=dict,
        blank=True,
        help_text="system, parameters, default_max_tokens, accepts and max_tokens_field, as a JSON "
        "object.",
    )
    fallback = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The model that answers a request in its place where it cannot. Empty: none.",
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
    mcp_servers = models.ManyToManyField(
        McpServer,
        verbose_name="MCP servers",
        blank=True,
        related_name="models",
        help_text="Servers whose tools the model is offered and that run what it calls.",
    )
    offer_mcp_tools = models.BooleanField(
        default=True,
        verbose_name="offer MCP tools",
        help_text="Offer these tools with every request. Otherwise only where a request's "
        "tool_choice names one: it is run once, and the model answers with what it said.",
    )
    tool_recursion_limit = models.PositiveIntegerField(
        default=10,
        help_text="How many rounds of calls of these tools one answer may have before the model "
        "must come to an end; a round may make several calls. 0: no tools, and requests that "
        "bring MCP servers along are refused.",
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
                violation_error_message="Prefixes reach the folder through host memory: it needs "
                "some.",
            )
        ]

    def __str__(self) -> str:
        return self.id
