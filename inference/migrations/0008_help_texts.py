"""Help texts of the admin's forms: lists are typed as lines, and a limit counts rounds."""

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
    ]
