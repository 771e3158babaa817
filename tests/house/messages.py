"""The catalogue of all user-visible strings: `python -m tests.house.messages` rewrites it.

A string counts as user-visible if it has two words, and is no docstring, pattern, query or code.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CATALOGUE = Path(__file__).with_name("messages.txt")

_LONGEST_PLACEHOLDER = 60
_WORDS = re.compile(r"[A-Za-z]{2}.* .*[A-Za-z]{2}")
_HEADING = "# Every user-visible string; made by `python -m tests.house.messages`."


def render() -> str:
    """Return the catalogue: a heading with the path of each file, and a line for each string."""
    parts = [_HEADING]
    for path in sources():
        if lines := messages_of(path):
            name = path.relative_to(ROOT).as_posix()
            parts.append("\n".join([name, *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts) + "\n"


def sources() -> list[Path]:
    """Return the files of the product that can have user-visible strings, sorted."""
    kinds = ("hvdtune/**/*.py", "hvdtune/**/*.js", "csrc/**/*.h", "csrc/**/*.cc", "csrc/**/*.cu")
    return sorted(path for kind in kinds for path in ROOT.glob(kind))


def messages_of(path: Path) -> list[str]:
    """Return the user-visible strings of a file in order of appearance."""
    text = path.read_text()
    found = _python_strings(text) if path.suffix == ".py" else _c_strings(text)
    lines = (" ".join(string.split()) for string in found)
    return [line for line in lines if _is_message(line)]


def _is_message(line: str) -> bool:
    prose = re.sub(r"\{[^{}]*\}|<[^<>]*>", " aa ", line)
    if not re.search(r"[a-z]{2}", re.sub(r"\baa\b", "", prose)) or not _WORDS.search(prose):
        return False
    return not _CODE.search(line)


# Queries, styles, scripts, patterns, include guards, lists of flags or names
_CODE = re.compile(
    r"^(SELECT|WITH \w+ AS|CREATE|INSERT|DELETE|UPDATE|PRAGMA|ALTER|ATTACH|COPY|FROM|WHERE|ORDER BY"
    r"|COALESCE|CAST|LEFT JOIN|JOIN|UNION)\b"
    r"|^(from [\w.]+ )?import \w|^#!|^\(?\?[:P<]|\\[dswb]|__asm__|^\w+\(\w+\)$|;\}|\bfunction\s*\("
    r"|^[\w-]+(: ?[^;]+; ?[\w-]+)+:|^[\w., -]+ \{ [\w-]+: |^#pragma|^extern \"C\"|__global__"
)


# Python


def _python_strings(text: str) -> list[str]:
    finder = _Strings()
    finder.visit(ast.parse(text))
    return finder.found


class _Strings(ast.NodeVisitor):
    """Collect strings, each joined from its parts: f-strings, and sums of strings."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        if any(_is_command(decorator) for decorator in node.decorator_list):
            self.found.append(ast.get_docstring(node) or "")  # click prints it as help
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # the same fields

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if not re.match(r"re\.|cast$|TypeVar$|struct\.|compile$", ast.unparse(node.func)):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if ast.unparse(node.value) not in ("Literal", "Annotated"):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._add(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._add(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add) and any(map(_is_string, _summands(node))):
            self._add(node)
        else:
            self.generic_visit(node)

    def _add(self, node: ast.expr) -> None:
        if not _is_string(node) and not isinstance(node, ast.BinOp):
            return
        text, cut = "", []
        for part in _parts(node):
            if isinstance(part, str):
                text += part
                continue
            shown = " ".join(ast.unparse(part).split())
            if len(shown) > _LONGEST_PLACEHOLDER:
                shown = "…"
                cut.append(part)
            text += f"{{{shown}}}"
        self.found.append(text)
        for part in cut:  # its own strings follow
            self.visit(part)


def _is_command(decorator: ast.expr) -> bool:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(call, ast.Attribute) and call.attr in ("command", "group")


def _is_string(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr)


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _parts(node: ast.expr) -> list[str | ast.expr]:
    """Return the texts of a string, and the expressions between them."""
    parts: list[str | ast.expr] = []
    for summand in _summands(node):
        if isinstance(summand, ast.JoinedStr):
            for value in summand.values:
                if isinstance(value, ast.Constant):
                    parts.append(str(value.value))
                else:
                    assert isinstance(value, ast.FormattedValue)
                    parts.append(value.value)
        elif isinstance(summand, ast.Constant) and isinstance(summand.value, str):
            parts.append(summand.value)
        else:
            parts.append(summand)
    return parts


# C++ and JavaScript

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                              # a comment
    | ^\s*\#\s*include[^\n]*
    | R"(?P<mark>[^(]*)\(.*?\)(?P=mark)"                # a raw string: code of a kernel
    | (?<=[(,=:\[!&|?{};])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\\\n\[])+/\w*  # a pattern
    | "(?P<double>(?:\\.|[^"\\\n])*)"
    | (?<![0-9A-Fa-f])'(?P<single>(?:\\.|[^'\\\n])*)'
    | `(?P<template>(?:\\.|[^`\\])*)`
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# What can stand between two literals of one sum: nothing, or terms without a comma or statement
_SUM = re.compile(r"\s*(?:(?P<sign>\+|<<)\s*(?P<terms>[^;{}]*?)\s*(?P=sign)\s*|\+?\s*)", re.DOTALL)


def _c_strings(text: str) -> list[str]:
    found: list[str] = []
    end = None  # of the literal before
    for token in _TOKEN.finditer(text):
        literal = next((token[k] for k in ("double", "single", "template") if token[k]), None)
        if literal is None:
            continue
        literal = re.sub(r"\$\{([^{}]*)\}", r"{\1}", literal)
        literal = re.sub(r"\\(?:n|t|r)", " ", literal).replace('\\"', '"').replace("\\'", "'")
        between = _SUM.fullmatch(text, end, token.start()) if end is not None else None
        if between and _is_one_term(between["terms"] or ""):
            terms = " ".join((between["terms"] or "").split())
            if len(terms) > _LONGEST_PLACEHOLDER:
                terms = "…"
            found[-1] += (f"{{{terms}}}" if terms else "") + literal
        else:
            found.append(literal)
        end = token.end()
    return found


def _is_one_term(terms: str) -> bool:
    """True if no comma or bracket ends the sum."""
    depth = 0
    for sign in terms:
        depth += (sign in "([") - (sign in ")]")
        if depth < 0 or (depth == 0 and sign in ",?:" and "::" not in terms):
            return False
    return depth == 0


if __name__ == "__main__":
    CATALOGUE.write_text(render())
    print(f"{CATALOGUE}: rewritten")
