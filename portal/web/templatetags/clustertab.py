"""What templates cannot say themselves: an icon of the sprite, a form field in our dress."""

from __future__ import annotations

from django import template
from django.forms import BoundField, CheckboxInput, RadioSelect, Select
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

SPRITE = "vendor/tabler-icons-3.51.0/icons.svg"


@register.simple_tag
def icon(name: str) -> SafeString:
    """A decorative icon by its name in the sprite; the text beside it carries the meaning."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', static(SPRITE), name)


@register.filter
def control(field: BoundField) -> SafeString:
    """The field's widget with the class that its kind of control needs."""
    widget = field.field.widget
    if isinstance(widget, RadioSelect):
        return field.as_widget()
    if isinstance(widget, CheckboxInput):
        kind = "form-check-input"
    else:
        kind = "form-select" if isinstance(widget, Select) else "form-control"
    return field.as_widget(attrs={"class": f"{kind} is-invalid" if field.errors else kind})


@register.filter
def is_checkbox(field: BoundField) -> bool:
    return isinstance(field.field.widget, CheckboxInput)
