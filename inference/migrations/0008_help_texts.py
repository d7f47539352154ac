"""What the admin's forms say: lists are typed as lines, a limit counts rounds, names are words."""

from django.core.validators import MinValueValidator, RegexValidator
from django.db import migrations, models

import inference.models


class Migration(migrations.Migration):
    dependencies = [
        ("inference", "0007_fallback"),
    ]

    operations = [
        migrations.AlterField(
            model_name="mcpserver",
            name="allowed_tools",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The tools that models may call, one name on each line. Empty: all.",
                validators=[inference.models.validate_names],
            ),
        ),
        migrations.AlterField(
            model_name="mcpserver",
            name="command",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="The program and its arguments, each on a line of its own.",
                validators=[inference.models.validate_names],
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="aliases",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Other names that callers may use for it, one on each line. Matched without regard to case.",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="tool_recursion_limit",
            field=models.PositiveIntegerField(
                default=10,
                help_text="How many rounds of calls of these tools one answer may have before the model must come to an end; a round may make several calls. 0: no tools, and requests that bring MCP servers along are refused.",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="itl_target_factor",
            field=models.FloatField(
                default=2,
                validators=[MinValueValidator(1)],
                verbose_name="time between tokens, factor",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="itl_target_ms",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Time between tokens that they are to see. Empty: the factor times that of the idle engine.",
                null=True,
                validators=[MinValueValidator(1)],
                verbose_name="time between tokens, target in ms",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="kv_offload_dir",
            field=models.CharField(
                blank=True,
                help_text="Folder that keeps them beyond that, and after the engine's end. It grows without limit. Empty: none.",
                max_length=500,
                validators=[RegexValidator("^/", "Must be an absolute path.")],
                verbose_name="folder",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="kv_offload_gib",
            field=models.FloatField(
                default=0,
                help_text="Host memory, in GiB for the whole engine, that keeps prefixes which its device has no more room for. 0: none.",
                validators=[MinValueValidator(0)],
                verbose_name="host memory, in GiB",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="mcp_servers",
            field=models.ManyToManyField(
                blank=True,
                help_text="Servers whose tools the model is offered and that run what it calls.",
                related_name="models",
                to="inference.mcpserver",
                verbose_name="MCP servers",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="ttft_target_factor",
            field=models.FloatField(
                default=2.5,
                validators=[MinValueValidator(1)],
                verbose_name="time to first token, factor",
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="ttft_target_ms",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Time to the first token that realtime requests are to see whatever work runs beside them. Empty: the factor times that of the idle engine.",
                null=True,
                validators=[MinValueValidator(1)],
                verbose_name="time to first token, target in ms",
            ),
        ),
        migrations.AlterConstraint(
            model_name="model",
            name="kv_offload_dir_needs_memory",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kv_offload_dir", ""), ("kv_offload_gib__gt", 0), _connector="OR"
                ),
                name="kv_offload_dir_needs_memory",
                violation_error_message="Prefixes reach the folder through host memory: it needs some.",
            ),
        ),
    ]
