"""Dashboards behind a real proxy, nginx, in a real browser."""

import contextlib
import shutil
import socket
import subprocess
import time

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.gate import PublicAddress
from hvdtune.launcher.hosts import free_port

from .conftest import SIZE, WAIT_MS, served, settle, watch

# What proxies do with path and Host: the prefix is removed and Host kept (jupyter-server-proxy),
# both are kept (Open OnDemand's /node/), Host is replaced by the dashboard's own (nginx itself).
WAYS = {
    "/user/me/proxy/1": ("/", "$http_host"),
    "/node/n1/8050": ("", "$http_host"),
    "/plain": ("/", "$proxy_host"),
}
FIRST = next(iter(WAYS))
_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    {places}
  }}
}}
"""
_PLACE = "location {path}/ {{ proxy_pass {origin}{rest}; proxy_set_header Host {host}; }}"


@contextlib.contextmanager
def proxied(folder, port, dashboards):
    """Start nginx in front of dashboards; `dashboards` has an origin for each prefix."""
    places = [
        _PLACE.format(path=path, origin=origin, rest=WAYS[path][0], host=WAYS[path][1])
        for path, origin in dashboards.items()
    ]
    text = _CONFIGURATION.format(folder=folder, port=port, places="\n".join(places))
    (folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx", path=_PATH)
    process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf", "-e", "errors"])
    try:
        while True:
            assert process.poll() is None, (folder / "errors").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def hub(tmp_path_factory, run_folder):
    """The origin of a hub that serves one dashboard for each of WAYS."""
    if shutil.which("nginx", path=_PATH) is None:
        pytest.skip("nginx is not installed")
    port = free_port("127.0.0.1")
    origin = f"http://hub.localhost:{port}"  # browsers resolve it to this machine
    run = open_run(run_folder)
    with contextlib.ExitStack() as stack:
        dashboards = {
            path: stack.enter_context(served(run, public=PublicAddress.parse(origin + path)))
            for path in WAYS
        }
        stack.enter_context(proxied(tmp_path_factory.mktemp("nginx"), port, dashboards))
        yield origin


@pytest.fixture
def context(browser):
    with browser.new_context(viewport=SIZE) as context:
        context.set_default_timeout(WAIT_MS)
        yield context


@pytest.mark.parametrize(
    "path", [FIRST, *(pytest.param(path, marks=pytest.mark.slow) for path in list(WAYS)[1:])]
)
def test_every_page_works_under_the_prefix(hub, context, path):
    root = hub + path
    page = context.new_page()
    complaints = watch(page, f"{root}/")
    page.goto(f"{root}/?token=key")
    page.wait_for_selector("#content h1")
    assert page.url == f"{root}/"
    (cookie,) = context.cookies()
    assert cookie["path"] == f"{path}/"
    titles = page.locator("nav a").all_inner_texts()
    assert len(titles) == 11
    for title in titles if path == FIRST else titles[:2]:
        page.locator("nav a", has_text=title).click()
        page.locator("#content h1", has_text=title).wait_for()
        settle(page)
        links = page.eval_on_selector_all("a[href]", "all => all.map(each => each.href)")
        outside = [link for link in links if not link.startswith(f"{root}/")]
        assert outside == []
    assert complaints == []


def test_a_timeline_and_a_download_work_under_the_prefix(hub, context):
    root = hub + FIRST
    page = context.new_page()
    complaints = watch(page, f"{root}/")
    page.goto(f"{root}/?token=key")
    page.wait_for_selector("#content h1")
    page.goto(f"{root}/timeline?run=0")
    settle(page)
    page.keyboard.press("/")
    page.keyboard.type("layer0")
    with page.expect_response(lambda answer: "/find?" in answer.url) as found:
        page.keyboard.press("Enter")
    assert found.value.status == 200
    assert found.value.url.startswith(f"{root}/find?")
    page.goto(f"{root}/tensors?run=0")
    settle(page)
    with page.expect_download() as saved:
        page.locator("[data-table]").first.click()
    assert saved.value.suggested_filename.endswith(".csv")
    assert complaints == []


def test_dashboards_of_one_hub_keep_their_keys_apart(hub, context):
    pages = [context.new_page() for _ in WAYS]
    for page, path in zip(pages, WAYS, strict=True):
        page.goto(f"{hub}{path}/?token=key")
        page.wait_for_selector("#content h1")
    for page in pages:
        page.reload()
        page.wait_for_selector("#content h1")


def test_without_the_token_nothing_is_shown(hub, context):
    for path in WAYS:
        answer = context.new_page().goto(f"{hub}{path}/")
        assert (answer.status, "carries a token" in answer.text()) == (403, True)
