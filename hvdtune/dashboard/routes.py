"""Plain routes beside Dash: tiles of the swimlane, and questions. They change nothing."""

from collections.abc import Callable
from typing import TypeVar

from flask import Flask, Response, abort, jsonify, request

from hvdtune.dashboard.critical_path import path_within
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.swimlane import Swimlane
from hvdtune.dashboard.tiles import MAX_PIXELS, TileWindow

MAX_TENSORS = 32
MAX_RANKS = 4_096

T = TypeVar("T")


def add_routes(server: Flask, runs: Runs) -> None:
    """/tile, /overview, /path, /totals, /find and /event, each of `?run=` and more.

    A bad request is told why.
    """

    def asked_run() -> RunView:
        return runs[_number("run", int, 0, len(runs) - 1)]

    def asked() -> Swimlane:
        return asked_run().swimlane

    @server.get("/tile")
    def give_tile() -> Response:
        tensors = request.args.getlist("tensor")[:MAX_TENSORS]
        body = asked().tile(_window(), _ranks(), tensors)
        return Response(body, content_type="application/octet-stream")

    @server.get("/overview")
    def give_overview() -> Response:
        return jsonify(asked().overview(_number("px", int, 1, MAX_PIXELS), _ranks()))

    @server.get("/path")
    def give_path() -> Response:
        return jsonify(path_within(asked_run(), _window()))

    @server.get("/totals")
    def give_totals() -> Response:
        return jsonify(asked().totals(_window(), _ranks()))

    @server.get("/find")
    def give_place() -> Response:
        number = _number("number", int, -(2**31), 2**31)
        return jsonify(asked().find(request.args.get("text", ""), number))

    @server.get("/event")
    def give_event() -> Response:
        swimlane = asked()
        row = _number("row", int, -(2**31), 2**31)
        try:
            return jsonify(swimlane.describe(row))
        except IndexError:
            abort(400, f"row is out of range: {row}")


def _window() -> TileWindow:
    times = (_number(name, float, -(2.0**62), 2.0**62) for name in ("from", "to"))
    first, last = times
    return TileWindow.of(
        first, last, _number("px", int, 1, MAX_PIXELS) if "px" in request.args else 1
    )


def _ranks() -> list[int]:
    found = []
    for text in request.args.getlist("rank")[:MAX_RANKS]:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            abort(400, f"rank is no number: {text[:20]!r}")
        found.append(int(text))
    return found


def _number(name: str, kind: Callable[[str], T], least: T, most: T) -> T:
    text = request.args.get(name, "")
    try:
        value = kind(text)
    except ValueError:
        abort(400, f"{name} is no number: {text[:20]!r}")
    if not least <= value <= most:  # type: ignore[operator]
        abort(400, f"{name} is out of range: {text[:20]!r}")
    return value
