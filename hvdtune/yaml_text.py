"""YAML as texts, nodes and values: profiles, search spaces, Horovod's configuration files.

Version 1.1, which Horovod's files are in: `yes` and `off` are true and false. By ruamel.yaml, since
PyYAML would bring an extension of 2.7 MB into every training environment.
"""

from __future__ import annotations

import warnings
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MantissaNoDotYAML1_1Warning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

__all__ = ["MappingNode", "Node", "ScalarNode", "YAMLError", "compose", "dump", "load", "value_of"]

_VERSION: Final = "1.1"
_DIRECTIVE: Final = f"%YAML {_VERSION}\n---\n"


def compose(text: str) -> Node | None:
    """The node of the text's only document, None for an empty one. Raises YAMLError."""
    node: Node | None = _yaml().compose(text)
    return node


def load(text: str) -> Any:
    """The value of the text's only document. Raises YAMLError."""
    return value_of(node) if (node := compose(text)) is not None else None


def value_of(node: Node) -> Any:
    """What a node stands for, in Python's own types. Raises YAMLError."""
    with warnings.catch_warnings():
        # 1e-3 is a number here as in YAML 1.2, though it has no point.
        warnings.simplefilter("ignore", MantissaNoDotYAML1_1Warning)
        return _yaml().constructor.construct_object(node, deep=True)


def dump(value: Any) -> str:
    """The text of a value of Python's own types; the keys of mappings keep their order."""
    text = StringIO()
    _yaml().dump(value, text)
    return text.getvalue().removeprefix(_DIRECTIVE)


def _yaml() -> YAML:
    made = YAML(typ="safe", pure=True)
    made.version = _VERSION
    made.default_flow_style = False
    made.representer.sort_base_mapping_type_on_output = False
    return made
