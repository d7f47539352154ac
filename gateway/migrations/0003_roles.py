"""Makes the roles of operators: groups, with what each may do (see `gateway.roles`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from gateway.roles import permissions_of_roles

APPS = ("admin", "auth", "axes", "gateway", "inference", "jobs")


def make_roles(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    permissions = {
        f"{each.content_type.app_label}.{each.codename}": each for each in _permissions(apps)
    }
    group = apps.get_model("auth", "Group")
    for role, names in permissions_of_roles(permissions).items():
        made, _ = group.objects.get_or_create(name=role)
        made.permissions.add(*(permissions[name] for name in names))


def _permissions(apps: Apps) -> Iterator[Any]:
    """Yield the permissions of these apps' tables; Django itself makes them after all migrations."""
    content_type = apps.get_model("contenttypes", "ContentType")
    permission = apps.get_model("auth", "Permission")
    for model in apps.get_models(include_auto_created=False):
        opts = model._meta
        if opts.app_label not in APPS:
            continue
        of_model, _ = content_type.objects.get_or_create(
            app_label=opts.app_label, model=opts.model_name
        )
        usual = (
            (f"{verb}_{opts.model_name}", f"Can {verb} {opts.verbose_name_raw}")
            for verb in opts.default_permissions
        )
        for codename, name in (*usual, *opts.permissions):
            made, _ = permission.objects.get_or_create(
                content_type=of_model, codename=codename, defaults={"name": name}
            )
            yield made


def keep_roles(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Operators have them by now."""


class Migration(migrations.Migration):
    dependencies = [
        ("gateway", "0002_accounting"),
        ("inference", "0006_mcp_servers"),
        ("jobs", "0007_minutes"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("axes", "0010_accessattemptexpiration"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.AlterModelOptions(
            name="team",
            options={
                "ordering": ["name"],
                "permissions": [("change_spending", "Can change what a team may spend")],
            },
        ),
        migrations.RunPython(make_roles, keep_roles),
    ]
