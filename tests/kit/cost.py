"""A pytest plugin: what each test file costs, and why tests were skipped, at the end of a run."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.kit.parametrized import share

_COLLECTION = "collection, imports"
_SHOWN = 10
_MANY_FILES = 150

# By test file: seconds of processors, seconds of the clock.
Costs = dict[str, tuple[float, float]]


def processor_s() -> float:
    """Return the processor time of this process and its descendants, reaped ones included."""
    used = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


class _Meter:
    """Measures one file after the other; each file's tests run in a row."""

    def __init__(self) -> None:
        self.costs: Costs = defaultdict(lambda: (0.0, 0.0))
        self._last = (0.0, time.monotonic() - (time.time() - psutil.Process().create_time()))

    def charge(self, name: str) -> None:
        """Everything since the last call was for this file."""
        now = processor_s(), time.monotonic()
        before = self.costs[name]
        spent = [new - old for new, old in zip(now, self._last, strict=True)]
        self.costs[name] = (before[0] + max(spent[0], 0.0), before[1] + spent[1])
        self._last = now


class _Report:
    def __init__(self, meter: _Meter, config: pytest.Config) -> None:
        self._meter = meter
        self._is_worker = hasattr(config, "workeroutput")
        self._costs: Costs = {}
        self._workers = 0

    def pytest_collection_finish(self) -> None:
        self._meter.charge(_COLLECTION)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        done = yield
        if nextitem is None or nextitem.path != item.path:
            self._meter.charge(item.nodeid.split("::")[0])
        return done

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_worker:
            session.config.workeroutput["costs"] = dict(self._meter.costs)  # type: ignore[attr-defined]
        elif not self._workers:
            self._costs = dict(self._meter.costs)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._workers += 1
        for name, spent in getattr(node, "workeroutput", {}).get("costs", {}).items():
            before = self._costs.get(name, (0.0, 0.0))
            self._costs[name] = (before[0] + spent[0], before[1] + spent[1])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
        for reason, count in skipped.most_common():
            terminalreporter.line(f"{count} skipped: {reason}")
        files = {name: spent for name, spent in self._costs.items() if spent[0] > 1.0}
        if len(files) < 2:
            return
        total, wall = (sum(spent[i] for spent in self._costs.values()) for i in (0, 1))
        if len(self._costs) > _MANY_FILES:
            some, all_ = share()
            terminalreporter.line(f"{some} of {all_} test functions are parametrized")
        terminalreporter.line(
            f"{total:.0f} s of processor time in {wall:.0f} s of all lanes; the most expensive:"
        )
        for name in sorted(files, key=files.__getitem__, reverse=True)[:_SHOWN]:
            terminalreporter.line(f"{files[name][0]:7.1f} s of {files[name][1]:6.1f} s  {name}")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").splitlines()[0]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Report(_Meter(), config), "cost")
