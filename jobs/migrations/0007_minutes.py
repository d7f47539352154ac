import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_requested_model"),
    ]

    operations = [
        migrations.CreateModel(
            name="LatencyMinute",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minute", models.DateTimeField()),
                ("model", models.CharField(max_length=200)),
                ("lane", models.CharField(max_length=20)),
                (
                    "first_token",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), size=None
                    ),
                ),
                (
                    "between_tokens",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), size=None
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "latency by minute",
                "ordering": ["-minute"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "model", "lane"), name="latency_minute"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RequestMinute",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minute", models.DateTimeField()),
                ("team_id", models.BigIntegerField()),
                ("model", models.CharField(max_length=200)),
                ("lane", models.CharField(blank=True, max_length=20)),
                ("outcome", models.CharField(max_length=50)),
                ("requests", models.BigIntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("cached_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name_plural": "requests by minute",
                "ordering": ["-minute"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "team_id", "model", "lane", "outcome"),
                        name="request_minute",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="usageday",
            index=models.Index(fields=["day"], name="usage_of_all"),
        ),
    ]
