import pytest

from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import describe_run
from hvdtune.dashboard.gate import names_this_machine

from .synthetic import training_trace

TOKEN = "a-token"
ROUTES = [
    ("GET", "/"),
    ("GET", "/_dash-layout"),
    ("GET", "/_dash-dependencies"),
    ("POST", "/_dash-update-component"),
    ("GET", "/assets/page.css"),
    ("GET", "/_favicon.ico"),
    ("GET", "/no/such/page"),
]


@pytest.fixture(scope="module")
def server():
    return create_app([describe_run("run", training_trace())], TOKEN).server


@pytest.fixture
def client(server):
    return server.test_client()


@pytest.mark.parametrize(("method", "route"), ROUTES)
@pytest.mark.parametrize("query", ["", "?token=", "?token=a-toke", "?token=%ff%fe"])
def test_no_route_answers_without_the_token(client, method, route, query):
    answer = client.open(route + query, method=method)
    assert answer.status_code == 403
    assert answer.text.startswith("403: this hvdtune dashboard opens only with the link")
    assert "Set-Cookie" not in answer.headers


def test_the_link_sets_a_cookie_and_drops_the_token_from_the_address(client):
    answer = client.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert client.get("/").status_code == 200


def test_the_cookie_of_another_dashboard_does_not_open_this_one(client):
    cookie = client.get(f"/?token={TOKEN}").headers["Set-Cookie"].split("=")[0]
    client.set_cookie(cookie, "another-token")
    assert client.get("/").status_code == 403


def test_a_foreign_host_name_is_refused_even_with_the_token(client):
    answer = client.get(f"/?token={TOKEN}", headers={"Host": "evil.example:8050"})
    assert answer.status_code == 403
    assert "host name" in answer.text


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


def test_names_from_a_trace_reach_the_page_as_text_only(client):
    client.get(f"/?token={TOKEN}")
    assert "<img" not in client.get("/").text
