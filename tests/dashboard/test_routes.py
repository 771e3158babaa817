import pytest

from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.runs import Runs

from .decode import decode
from .synthetic import HOSTILE, training_trace
from .visitor import visitor


@pytest.fixture(scope="module")
def client():
    return visitor(
        create_app(Runs([RunView("run", training_trace())]), "a-token").server, "a-token"
    )


def test_a_tile_is_bytes(client):
    answer = client.get("/tile?run=0&from=44e6&to=84e6&px=300&rank=1&tensor=model.layer3.weight")
    tile = decode(answer.data)
    assert tile["pixels"] == 300
    assert tile["labels"][-1][1] == "model.layer3.weight"


def test_totals_places_and_events_are_json(client):
    assert client.get("/totals?run=0&from=0&to=1e9").json[0]["lane"] == "busy"
    path = client.get("/path?run=0&from=44e6&to=84e6").json
    assert [step for *_, step in path["steps"]] == [1, 2]
    assert len(client.get("/overview?run=0&px=70&rank=1").json["shares"]) == 70
    place = client.get("/find?run=0&text=img&number=0").json
    assert place["name"] == HOSTILE
    assert HOSTILE in client.get(f"/event?run=0&row={place['row']}").json["title"]
    assert client.get("/find?run=0&text=nowhere&number=0").json is None


@pytest.mark.parametrize(
    "address",
    [
        "/tile",
        "/tile?run=1&from=0&to=1",
        "/tile?run=-1&from=0&to=1",
        "/tile?run=x&from=0&to=1",
        "/tile?run=0&from=nan&to=1",
        "/tile?run=0&from=0&to=inf",
        "/tile?run=0&from=0&to=1&px=100000",
        "/tile?run=0&from=0&to=1&rank=-1",
        "/tile?run=0&from=0&to=1&rank=1e3",
        "/event?run=0&row=100000000",
        "/event?run=0&row=-1",
        "/find?run=0&text=x",
        "/totals?run=0&from=0",
    ],
)
def test_a_bad_request_is_told_what_is_wrong(client, address):
    answer = client.get(address)
    assert answer.status_code == 400
    assert "is no number" in answer.text or "is out of range" in answer.text


@pytest.mark.parametrize("path", ["/tile", "/overview", "/path", "/totals", "/find", "/event"])
def test_routes_only_answer_questions(client, path):
    assert client.post(f"{path}?run=0&from=0&to=1").status_code == 405


@pytest.mark.parametrize(
    "path", ["dash/../../../../../etc/passwd", "dash/no-such.js", "no-such/x.js"]
)
def test_a_script_that_is_not_there_is_refused_without_a_traceback(capsys, path):
    client = visitor(create_app(Runs([RunView("run", training_trace())]), "key").server, "key")
    answer = client.get(f"/_dash-component-suites/{path}")
    assert (answer.status_code, answer.mimetype) == (404, "text/plain")
    assert not capsys.readouterr().err


def test_what_is_no_request_of_a_page_is_refused_without_a_traceback(capsys):
    client = visitor(
        create_app(Runs([RunView("run", training_trace())]), "a-token").server, "a-token"
    )
    answer = client.post("/_dash-update-component", json={}, base_url="http://localhost")
    assert answer.status_code == 400
    assert "invalid request" in answer.text
    assert "Traceback" not in capsys.readouterr().err
