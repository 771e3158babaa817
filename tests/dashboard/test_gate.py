import re

import pytest

from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.gate import PublicAddress, names_this_machine
from hvdtune.dashboard.runs import Runs
from hvdtune.errors import UsageError

from .synthetic import training_trace
from .visitor import visitor

TOKEN = "a-token"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@pytest.fixture(scope="module")
def server():
    return create_app(Runs([RunView("run", training_trace())]), TOKEN).server


@pytest.fixture
def client(server):
    return server.test_client()


def routes(server):
    """An address for every rule the server has, and one for none."""
    addresses = {"/no/such/page", "/tile", "/timeline", "/assets/page.css"}
    for rule in server.url_map.iter_rules():
        values = {name: "0" if name == "id" else "x" for name in rule.arguments}
        _, path = rule.build(values, append_unknown=False)
        addresses.add(path)
    return sorted(addresses)


@pytest.mark.parametrize("method", METHODS)
def test_no_route_answers_to_a_stranger(server, client, method):
    every = routes(server)
    assert {"/", "/tile", "/totals", "/find", "/event", "/_dash-update-component"} <= set(every)
    opened = visitor(server, TOKEN)
    for route in every:
        for query in ("", "?token=", "?token=a-toke", "?token=%ff%fe"):
            answer = client.open(route + query, method=method)
            assert answer.status_code == 403, (method, route, query)
            assert "Set-Cookie" not in answer.headers
            assert method == "HEAD" or "carries a token" in answer.text
        for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            assert opened.open(route, method=method, headers=header).status_code == 403
    assert opened.get("/tile?run=0&from=0&to=1").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/%09/evil.example", "/%0a/evil.example", "/%5cevil.example", "/%2fevil.example", "/x%3fy"],
)
def test_without_its_token_an_address_leads_to_this_server(client, path):
    client.get(f"/?token={TOKEN}")
    leads_to = client.get(f"{path}?token={TOKEN}&run=1").headers["Location"]
    # As browsers read it: they leave out tabs and ends of lines.
    seen = re.sub(r"[\t\r\n]", "", leads_to).replace("\\", "/")
    assert re.match(r"/(?!/)[^#]*\?run=1#key=[\w-]+$", seen)


@pytest.mark.parametrize(
    ("header", "value", "said"),
    [
        ("Origin", "null", "accepts requests from its own pages only"),
        ("Origin", "http://localhost.evil.example", "accepts requests from its own pages only"),
        ("Origin", "http://localhost:81", "accepts requests from its own pages only"),
        ("Host", "evil.example:8050", "host name"),
    ],
)
def test_others_are_refused_even_with_the_token_and_the_cookie(client, header, value, said):
    client.get(f"/?token={TOKEN}")
    for address in ("/", f"/?token={TOKEN}"):
        answer = client.get(address, headers={header: value})
        assert answer.status_code == 403
        assert said in answer.text
    assert client.get("/", headers={"Origin": "http://localhost"}).status_code == 200


def test_the_link_sets_a_cookie_and_drops_the_token_from_the_address(client):
    answer = client.get(f"/?token={TOKEN}")
    assert answer.status_code == 303
    place, _, key = answer.headers["Location"].partition("#key=")
    assert (place, len(key)) == ("/", 43)
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert TOKEN not in cookie + key and key not in cookie
    assert client.get("/").status_code == 200


# Browsers send a host's cookies to all servers of it, whatever their port.
def test_who_is_sent_the_cookie_sees_nothing_of_a_run(server):
    visited, invited = server.test_client(), visitor(server, TOKEN)
    visited.get(f"/?token={TOKEN}")
    public = ("/assets/", "/_dash-component-suites/", "/_favicon.ico")
    for route in routes(server):
        answer = visited.get(route)
        is_shell = answer.mimetype == "text/html" and '"_dash-config"' in answer.text
        assert answer.status_code == 403 or route.startswith(public) or is_shell, route
        answer.close()
        assert visited.post(route).status_code in (403, 405)
    for route in ("/_dash-layout", "/_dash-dependencies", "/tile?run=0&from=0&to=1"):
        assert "the key that comes with the printed link" in visited.get(route).text
        assert invited.get(route).status_code == 200


@pytest.mark.parametrize("port", ["", ":8050", ":8051"])
def test_dashboards_of_one_host_have_cookies_of_their_own(client, port):
    answer = client.get(f"/?token={TOKEN}", headers={"Host": f"[::1]{port}"})
    assert answer.headers["Set-Cookie"].startswith(f"hvdtune_{port[1:] or 80}=")


def test_the_cookie_of_another_dashboard_does_not_open_this_one(client):
    cookie = client.get(f"/?token={TOKEN}").headers["Set-Cookie"].split("=")[0]
    client.set_cookie(cookie, "another-token")
    assert client.get("/").status_code == 403


@pytest.mark.parametrize(
    ("header", "bound", "known"),
    [
        ("127.0.0.1:8050", "127.0.0.1", True),
        ("localhost:9999", "127.0.0.1", True),
        ("[::1]:8050", "::1", True),
        ("localhost", "127.0.0.1", True),
        ("192.168.1.4:8050", "127.0.0.1", False),
        ("192.168.1.4:8050", "0.0.0.0", True),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example:8050", "0.0.0.0", False),
        ("", "127.0.0.1", False),
    ],
)
def test_host_headers_that_rebinding_can_produce_are_unknown(header, bound, known):
    assert names_this_machine(header, bound) is known


PREFIX = "/user/me%40x/proxy/8050"
HUB = PublicAddress.parse(f"https://hub.example.org{PREFIX}/")


@pytest.fixture
def behind_proxy():
    app = create_app(Runs([RunView("run", training_trace())]), TOKEN, public=HUB)
    return app.server.test_client()


@pytest.mark.parametrize("sent", ["", PREFIX], ids=["prefix removed", "prefix kept"])
def test_the_link_stays_under_the_prefix(behind_proxy, sent):
    answer = behind_proxy.get(f"{sent}/ranks?token={TOKEN}", headers={"Host": "hub.example.org"})
    assert answer.headers["Location"].startswith(f"{PREFIX}/ranks#key=")
    cookie = answer.headers["Set-Cookie"]
    assert f"; Path={PREFIX}/;" in f"{cookie};"
    assert "Secure" in cookie


def test_a_prefix_without_its_slash_leads_to_the_page(behind_proxy):
    answer = behind_proxy.get(f"{PREFIX}?token={TOKEN}")
    assert (answer.status_code, answer.headers["Location"]) == (308, f"{PREFIX}/?token={TOKEN}")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("hub.example.org", "https://hub.example.org", 303),
        ("hub.example.org:443", None, 303),
        ("127.0.0.1:8050", "https://hub.example.org", 303),
        ("127.0.0.1:8050", None, 303),
        ("hub.example.org", "https://evil.example", 403),
        ("127.0.0.1:8050", "http://hub.example.org", 403),
        ("127.0.0.1:8050", "https://hub.example.org:8443", 403),
        ("127.0.0.1:8050", "null", 403),
        ("127.0.0.1:8050", "", 403),
        ("hub.example.org.evil.example", None, 403),
        ("example.org", None, 403),
    ],
)
def test_only_the_host_and_the_origin_of_the_prefix_are_allowed(behind_proxy, host, origin, status):
    headers = {"Host": host, **({} if origin is None else {"Origin": origin})}
    answer = behind_proxy.get(f"/?token={TOKEN}", headers=headers)
    assert answer.status_code == status
    assert status == 303 or "start it with --prefix" in answer.text


@pytest.mark.parametrize(
    ("text", "origin", "path"),
    [
        ("/", "", ""),
        ("/user/me/proxy/8050/", "", "/user/me/proxy/8050"),
        ("http://Hub.example.org:8000/a", "http://hub.example.org:8000", "/a"),
        ("https://hub.example.org:443", "https://hub.example.org", ""),
        ("http://[::1]:80/a/", "http://[::1]", "/a"),
    ],
)
def test_a_prefix_is_a_path_or_a_url(text, origin, path):
    assert PublicAddress.parse(text) == PublicAddress(origin, path)


@pytest.mark.parametrize(
    "text",
    ["a/b", "//evil.example", "/a//b", "/a/../b", "/a?b", "/a#b", "/a b", "/a;b", "/a\tb", "/%zz",
     "ftp://hub/a", "https:///a", "https://me@hub/a", "https://hub:x/a", "/a\\b", "/a<b"],
)  # fmt: skip
def test_another_prefix_is_refused(text):
    with pytest.raises(UsageError, match="is neither a path nor a URL"):
        PublicAddress.parse(text)


def test_every_answer_forbids_other_origins(client):
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy


def test_the_page_has_no_dev_tools_version_check_or_mcp(client, server):
    client.get(f"/?token={TOKEN}")
    page = client.get("/").text
    assert '"ui":false' in page
    assert '"disable_version_check":true' in page
    assert not [rule for rule in server.url_map.iter_rules() if "mcp" in rule.rule]
    assert "https://" not in page.replace("https://dash-version.plotly.com", "")


def test_names_from_a_trace_reach_the_page_as_text_only(server):
    client = visitor(server, TOKEN)
    assert "<img" not in client.get("/").text
    told = client.get("/event?run=0&row=20")
    assert told.content_type == "application/json"
    assert client.get("/tile?run=0&from=0&to=1e9").content_type == "application/octet-stream"
    assert told.headers["X-Content-Type-Options"] == "nosniff"
