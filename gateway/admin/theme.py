"""The theme under names of our own. No other module imports it, so that it can be changed.

Templates extend `admin/base_site.html` and the like, which every theme for Django's admin has; what
they include of this theme by its own name goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.db.models import DateTimeField, JSONField, ManyToManyField, QuerySet
from django.http import HttpRequest
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold import decorators, widgets
from unfold.contrib.filters import admin as theme_filters
from unfold.dataclasses import SearchResult
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm as PasswordChangeForm
from unfold.forms import AuthenticationForm, UserChangeForm, UserCreationForm

from gateway.admin.json_field import JsonField

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite, TabularInline

    _ModelAdmin = admin.ModelAdmin[Any]
    _ChoiceFilter = admin.ChoicesFieldListFilter
    _OptionFilter = admin.SimpleListFilter
    _TextFilter = admin.SimpleListFilter
    _RelatedFilter = admin.RelatedFieldListFilter
    _YesNoFilter = admin.BooleanFieldListFilter
else:
    from unfold.admin import ModelAdmin as _ModelAdmin
    from unfold.admin import TabularInline
    from unfold.sites import UnfoldAdminSite as AdminSite

    _ChoiceFilter = theme_filters.ChoicesDropdownFilter
    _OptionFilter = theme_filters.DropdownFilter
    _RelatedFilter = theme_filters.RelatedDropdownFilter
    _TextFilter = theme_filters.TextFilter
    _YesNoFilter = theme_filters.BooleanRadioFilter

__all__ = [
    "RANGE_TEMPLATE",
    "AdminSite",
    "AuthenticationForm",
    "CheckboxSelectMultiple",
    "ChoiceFilter",
    "DateTimeInput",
    "ModelAdmin",
    "NumberInput",
    "OptionFilter",
    "PasswordChangeForm",
    "RelatedFilter",
    "SearchResult",
    "Select",
    "SplitDateTime",
    "TabularInline",
    "TextFilter",
    "TextInput",
    "Textarea",
    "UserChangeForm",
    "UserCreationForm",
    "YesNoFilter",
    "button",
    "display",
    "link",
    "when_shown",
]

_Shown = TypeVar("_Shown", bound=Callable[..., Any])

_refuse_null = ProhibitNullCharactersValidator()

RANGE_TEMPLATE = "unfold/filters/filters_datetime_range.html"
"""Shows a filter that is a form: its `choices` yield `{"form": …}`."""

CheckboxSelectMultiple = widgets.UnfoldAdminCheckboxSelectMultipleWidget
NumberInput = widgets.UnfoldAdminDecimalFieldWidget
Select = widgets.UnfoldAdminSelectWidget
SplitDateTime = widgets.UnfoldAdminSplitDateTimeWidget
Textarea = widgets.UnfoldAdminTextareaWidget
TextInput = widgets.UnfoldAdminTextInputWidget


class ModelAdmin(_ModelAdmin):
    """What every page of a table looks like. Filters apply together, when they are sent."""

    list_filter_submit = True
    list_fullwidth = True
    compressed_fields = True
    warn_unsaved_form = True
    # What is asked before an action names each row that is chosen, and is answered with them: of
    # thousands Django takes no answer.
    list_disable_select_all = True
    # Django's two lists side by side are wider than a laptop's screen, and hard to use by ear.
    formfield_overrides = {
        ManyToManyField: {"widget": CheckboxSelectMultiple},
        JSONField: {"form_class": JsonField},
    }

    @property
    def lists_moments(self) -> bool:
        """Whether its list has a column of moments: it says then that they are in UTC."""
        fields = self.opts.get_fields()
        moments = {field.name for field in fields if isinstance(field, DateTimeField)}
        return not moments.isdisjoint(map(str, self.list_display))

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Carry out what was chosen. Raises `BadRequest` for what can be no row's id."""
        for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                _refuse_null(chosen)
                queryset.model._meta.pk.to_python(chosen)
            except ValidationError as error:
                raise BadRequest("there is no such row") from error
        return super().response_action(request, queryset, *args, **kwargs)


class DateTimeInput(forms.DateTimeInput):
    """One native field for a moment: it needs no script, and phones have a picker for it."""

    input_type = "datetime-local"

    def __init__(self, label: str) -> None:
        classes = " ".join(widgets.DATETIME_CLASSES)
        super().__init__({"class": classes, "aria-label": label}, format="%Y-%m-%dT%H:%M")


class _SelectForm(forms.Form):
    """A filter's options as a native select."""

    def __init__(
        self, name: str, label: str, choices: Any, *, multiple: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        field = forms.MultipleChoiceField if multiple else forms.ChoiceField
        self.fields[name] = field(label=label, required=False, choices=choices, widget=Select)


class ChoiceFilter(_ChoiceFilter):
    """By a field that has choices."""

    form_class = _SelectForm


class OptionFilter(_OptionFilter):
    """Like Django's `SimpleListFilter`."""

    form_class = _SelectForm


class RelatedFilter(_RelatedFilter):
    """By a foreign key; for tables of few rows."""

    form_class = _SelectForm


class TextFilter(_TextFilter):
    """By what is typed. Subclasses have a title, a parameter_name and a queryset."""


class YesNoFilter(_YesNoFilter):
    """By a field that is true or false."""


def button(
    description: str, *, permissions: Iterable[str], icon: str = "", is_dangerous: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method the target of a button, to be named in `actions_list` or `actions_detail`.

    It is reached by GET, and so must change nothing: it asks, or answers. The permissions are
    those of `has_…_permission` and are checked when it is called, too.
    """
    variant = ActionVariant.DANGER if is_dangerous else ActionVariant.DEFAULT
    decorate: Callable[[Callable[..., Any]], Callable[..., Any]] = decorators.action(
        description=description,
        permissions=list(permissions),
        icon=icon or None,
        variant=variant,
    )
    return decorate


def display(*, description: str, label: Mapping[Any, str]) -> Callable[[_Shown], _Shown]:
    """Show what a method returns in a colour: of the pair (key, text), the key's in `label`.

    For lists; a read-only page shows the field itself.
    """
    decorate: Callable[[_Shown], _Shown] = decorators.display(
        description=description, label=dict(label)
    )
    return decorate


def when_shown(method: Callable[..., str]) -> Callable[..., str]:
    """Let a method be carried out when what it returns is shown, and once for each row.

    The theme asks each method of a read-only page several times, the first time for nothing but
    what kind of thing it returns. For those that ask the database.
    """
    name = f"_shown_{method.__name__}"

    def once(site: Any, row: Any) -> str:
        # A row is read anew for each page.
        if name not in row.__dict__:
            row.__dict__[name] = method(site, row)
        shown: str = row.__dict__[name]
        return shown

    carried_out: Callable[..., str] = lazy(wraps(method)(once), SafeString)
    return carried_out


def link(address: str, text: object) -> SafeString:
    """Return a link as the theme shows it within text."""
    return format_html('<a href="{}" class="text-link">{}</a>', address, text)
