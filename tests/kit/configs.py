"""Configurations by flat names: a field of a group is `field` or `group_field`, as `gpu_bits`."""

from __future__ import annotations

import dataclasses
from typing import Any

from hvdtune.core.config.environment import Config


def make_config(base: Config | None = None, **fields: Any) -> Config:
    """Return `base`, else the defaults, with these fields."""
    config = Config() if base is None else base
    for name, value in fields.items():
        config = _with_field(config, name, value)
    return config


def _with_field(config: Config, name: str, value: Any) -> Config:
    for group, content in vars(config).items():
        field = name.removeprefix(f"{group}_")
        if dataclasses.is_dataclass(content) and hasattr(content, field):
            return dataclasses.replace(
                config, **{group: dataclasses.replace(content, **{field: value})}
            )
    return dataclasses.replace(config, **{name: value})


def flat(config: Config) -> dict[str, Any]:
    """Return all fields by both of their names."""
    fields = dict(vars(config))
    for group, content in vars(config).items():
        if dataclasses.is_dataclass(content):
            fields |= vars(content)
            fields |= {f"{group}_{name}": value for name, value in vars(content).items()}
    return fields
