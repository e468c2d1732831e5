"""What every object of settings can do: refuse wrong values and unknown names, be made from a table, and change in a copy.

A *group* is a flat dataclass of declared settings (:mod:`bkclient.config.fields`); a *grouped* configuration is a dataclass of
groups. Errors give the full name of a setting, ``timeouts.add_s``, wherever it was set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from bkclient.config.fields import Setting, check_settings, setting_of
from bkclient.config.names import hint, nearest
from bkclient.errors import ArgumentError

__all__ = ["GroupedSettings", "SettingsGroup", "declared_settings", "groups_of", "nested", "settings_class"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsGroup:
    """Settings that belong together; each field is declared by a function of :mod:`bkclient.config.fields`."""

    #: The group's name in the configuration it is part of, and a dot; nothing for one that stands alone.
    prefix: ClassVar[str] = ""
    #: Pairs of settings of which the first must not exceed the second.
    ordered: ClassVar[tuple[tuple[str, str], ...]] = ()
    #: All settings of the configuration that the group is part of, by full name: a name may be meant for another group.
    siblings: ClassVar[Mapping[str, Setting] | None] = None

    def __post_init__(self) -> None:
        check_settings(self, self.ordered, prefix=self.prefix)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Settings by name, as a TOML or JSON file has them: a list for a tuple, a name for the member of an enum.

        Raises :class:`~bkclient.errors.ArgumentError` for an unknown name, with the name that was probably meant.
        """
        _check_mapping(settings, cls.prefix.rstrip(".") or "settings")
        known = {field.name: setting_of(field) for field in fields(cls)}
        plain = {str(name): value for name, value in settings.items()}
        return cls(**{name: known[name].from_plain(value) if name in known else value for name, value in plain.items()})

    def with_changes(self, **changes: Any) -> Self:
        """A copy with ``changes``, which are checked as by the constructor."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSettings:
    """A configuration whose fields are groups of settings."""

    def __post_init__(self) -> None:
        for name, group in groups_of(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, group):
                raise ArgumentError(f"{name} must be {_a(group)}, got {type(value).__name__}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The configuration in ``settings``: a table for each group, as in a TOML or JSON file.

        A list stands for a tuple, a name for the member of an enum. Raises :class:`~bkclient.errors.ArgumentError` for an
        unknown name, with the name that was probably meant.
        """
        _check_mapping(settings, "settings")
        groups = groups_of(cls)
        return cls(
            **{
                name: groups[name].of(value) if name in groups and not isinstance(value, SettingsGroup) else value
                for name, value in settings.items()
            }
        )

    def with_changes(self, **changes: SettingsGroup | Mapping[str, Any]) -> Self:
        """A copy with ``changes``, which are checked as by the constructor.

        A group is replaced by a whole one, ``timeouts=TimeoutSettings(add_s=1.0)``, or changed in some of its settings,
        ``timeouts={"add_s": 1.0}``.
        """
        groups = groups_of(type(self))
        changed = {
            name: getattr(self, name).with_changes(**value) if name in groups and isinstance(value, Mapping) else value
            for name, value in changes.items()
        }
        return replace(self, **changed)


def groups_of(cls: type[GroupedSettings]) -> dict[str, type[SettingsGroup]]:
    """The groups of a configuration by name."""
    groups: dict[str, Any] = {field.name: field.default_factory for field in fields(cls)}
    return groups


def declared_settings(cls: type[GroupedSettings]) -> dict[str, Setting]:
    """All settings of a configuration by full name, ``timeouts.add_s``."""
    return {
        f"{name}.{field.name}": setting_of(field) for name, group in groups_of(cls).items() for field in fields(group)
    }


def nested(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by full name as a table for each group."""
    tables: dict[str, dict[str, Any]] = {}
    for full, value in settings.items():
        group, _, name = full.partition(".")
        tables.setdefault(group, {})[name] = value
    return tables


def settings_class(cls: type[T]) -> type[T]:
    """Make an unknown name, or an argument without a name, an error that helps; to be applied above ``@dataclass``."""
    make: Callable[..., None] = cls.__init__
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # it is a dataclass by now

    @functools.wraps(make)
    def __init__(self: T, *values: Any, **settings: Any) -> None:  # noqa: N807 - it becomes the method of this name
        if values:
            raise ArgumentError("settings are given by name")
        for name in settings:
            if name not in names:
                raise ArgumentError(f"there is no setting {_prefix(cls) + name!r}{_hint(cls, name)}")
        make(self, **settings)

    cls.__init__ = __init__  # type: ignore[assignment]
    if issubclass(cls, GroupedSettings):
        for group in groups_of(cls).values():
            group.siblings = declared_settings(cls)
    return cls


def _a(cls: type) -> str:
    return f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"


def _prefix(cls: type) -> str:
    return cls.prefix if issubclass(cls, SettingsGroup) else ""


def _hint(cls: type, name: str) -> str:
    if issubclass(cls, GroupedSettings):
        group = nearest(name, groups_of(cls), likeness=0.9)
        return group or hint(name, declared_settings(cls), f"{cls.__name__}.from_properties()")
    assert issubclass(cls, SettingsGroup), "there is nothing else to decorate"
    own = {cls.prefix + field.name: setting_of(field) for field in fields(cls)}
    return hint(name, own, "from_properties()") or hint(name, cls.siblings or {}, "from_properties()")


def _check_mapping(value: object, name: str) -> None:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must be a mapping, got {type(value).__name__}")
