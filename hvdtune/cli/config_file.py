"""`--config-file`: Horovod's YAML file of options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import TERMS
from hvdtune.yaml_text import MappingNode, Node, ScalarNode, YAMLError, compose, value_of

# Key, and the name of the option's field.
KEYS: Final = MappingProxyType({term.key: term.option for term in TERMS if term.key})
_SECTIONS: Final = frozenset(key.partition(".")[0] for key in KEYS if "." in key)


@dataclass(frozen=True)
class Leaf:
    """One entry; `where` is the file and line."""

    key: str
    value: Any
    where: str


def read_config_file(path: Path) -> dict[str, Leaf]:
    """Reads the file's values by the name of the option's field; keys without a value are left out.

    Raises UsageError naming file, line and key of the first fault.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        root = compose(text)
        leaves = [] if root is None else list(_leaves(root, path))
    except OSError as error:
        raise UsageError(f"--config-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the file is not text") from None
    except YAMLError as error:
        raise UsageError(f"{path}: the file is not YAML: {' '.join(str(error).split())}") from None
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        if KEYS[leaf.key] in found:
            raise UsageError(f"{leaf.where}: {leaf.key} is specified twice")
        found[KEYS[leaf.key]] = leaf
    return {name: leaf for name, leaf in found.items() if leaf.value is not None}


def _leaves(root: Node, path: Path) -> Iterator[Leaf]:
    for where, name, node in _entries(root, path, "the file"):
        if name in KEYS:
            yield _leaf(name, node, where)
        elif name in _SECTIONS:
            if isinstance(node, ScalarNode) and value_of(node) is None:
                continue  # `params:` with nothing below
            for inner_where, inner, value in _entries(node, path, name):
                if f"{name}.{inner}" not in KEYS:
                    raise UsageError(f"{inner_where}: unknown key {name}.{inner}")
                yield _leaf(f"{name}.{inner}", value, inner_where)
        else:
            raise UsageError(f"{where}: unknown key {name}")


def _entries(node: Node, path: Path, name: str) -> Iterator[tuple[str, str, Node]]:
    if not isinstance(node, MappingNode):
        raise UsageError(f"{path}:{node.start_mark.line + 1}: {name} must be a mapping of keys")
    for key, value in node.value:
        yield f"{path}:{key.start_mark.line + 1}", str(key.value), value


def _leaf(key: str, node: Node, where: str) -> Leaf:
    if not isinstance(node, ScalarNode):
        raise UsageError(f"{where}: {key} must be a single value")
    return Leaf(key, value_of(node), where)
