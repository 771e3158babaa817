"""How many test functions take several cases: python -m tests.kit.parametrized."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def share() -> tuple[int, int]:
    """Test functions that are parametrized, by a decorator or a fixture, and all."""
    trees = {path: ast.parse(path.read_text()) for path in TESTS.rglob("*.py")}
    functions = [
        node for t in trees.values() for node in ast.walk(t) if isinstance(node, ast.FunctionDef)
    ]
    many = {node.name for node in functions if "params=" in _decorators(node)}
    tests = [node for node in functions if node.name.startswith("test_")]
    return sum("parametrize" in _decorators(t) or bool(many & _arguments(t)) for t in tests), len(
        tests
    )


def _decorators(node: ast.FunctionDef) -> str:
    return " ".join(map(ast.unparse, node.decorator_list))


def _arguments(node: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in node.args.args}


if __name__ == "__main__":
    print("{} of {} test functions are parametrized".format(*share()))
