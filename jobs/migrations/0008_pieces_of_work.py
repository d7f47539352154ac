"""The plural that the admin shows: a list has 15 pieces of work, and not 15 work."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_minutes"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="work",
            options={"verbose_name": "piece of work", "verbose_name_plural": "pieces of work"},
        ),
    ]
