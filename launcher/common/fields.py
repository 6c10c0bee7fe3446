"""Documents of other versions, read by the fields that ours has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def from_fields(kind: type[R], document: Mapping[str, Any], **parts: Any) -> R:
    """A `kind` of the document's values, `parts` in the place of theirs; keys that are no field are passed over.

    Raises TypeError where the document lacks a field that has no default.
    """
    known = {key: value for key, value in document.items() if key in kind.__dataclass_fields__}
    return kind(**{**known, **parts})
