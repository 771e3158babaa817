"""Many small checks in one job: each is a body that every rank runs, and tests look at the values.

A job costs a second and torch's import more; a body costs milliseconds.
"""

from collections.abc import Callable
from typing import Any

from tests.parallel.ranks import run


class Bodies:
    """Functions to run as every rank, by name; add them with `@bodies`."""

    def __init__(self) -> None:
        self._bodies: dict[str, Callable[[], Any]] = {}

    def __call__(self, body: Callable[[], Any]) -> Callable[[], Any]:
        self._bodies[body.__name__] = body
        return body

    def run_all(self) -> dict[str, Any]:
        """As one rank: what each returned."""
        values = {}
        for name, body in self._bodies.items():
            try:
                values[name] = body()
            except BaseException as error:
                raise AssertionError(f"{name} failed") from error
        return values

    def of_every_rank(
        self, body: Callable[[], dict[str, Any]], size: int, **options: Any
    ) -> dict[str, list[Any]]:
        """Starts a job whose ranks call `body`, a module's function that calls `run_all`."""
        ranks = run(body, size, timeout_s=240.0, **options)
        return {name: [values[name] for values in ranks] for name in self._bodies}
