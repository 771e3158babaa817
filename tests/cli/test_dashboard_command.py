"""`hvdtune dashboard` against files and jobs that run."""

import re
import signal
import urllib.request

import pytest

TRAIN = "init(); print('up', os.getpid())\nwhile True: time.sleep(0.05); step()"
WAIT_MS = 200_000


def link_of(process):
    return re.search(r"http://\S+", process.stdout.readline())[0]


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    yield context.new_page()
    context.close()


def steps_shown(page):
    text = page.locator("#live-note").inner_text()
    found = re.match(r"([\d,]+) steps", text)
    return int(found[1].replace(",", "")) if found else 0


def wait_for_steps(page, more_than):
    page.wait_for_function(
        """least => { const found = /^([\\d,]+) steps/.exec(
        document.getElementById('live-note')?.textContent);
        return found && Number(found[1].replaceAll(',', '')) > least; }""",
        arg=more_than,
    )


def test_a_job_is_watched_as_it_goes_and_is_left_alone(hvdtune, script, page, tmp_path):
    script(TRAIN)
    job = hvdtune("run", "-np", "2", "train.py")
    for _ in range(2):
        job.stdout.readline()
    watching = hvdtune("dashboard", "--attach", job.pid, "--port", "0", "--no-browser")
    link = link_of(watching)
    page.goto(link)
    page.goto(link.split("?")[0] + "live")
    wait_for_steps(page, 0)
    page.wait_for_selector("#live-steps .scatterlayer .trace")
    seen = steps_shown(page)
    wait_for_steps(page, seen)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    watching.send_signal(signal.SIGINT)
    out, _ = watching.communicate()
    assert (watching.returncode, out) == (0, "hvdtune dashboard: ended\n")
    assert job.poll() is None
    assert {path.name for path in tmp_path.iterdir()} == {"train.py"}


@pytest.mark.slow
def test_a_job_that_ends_is_said_to_have_ended(hvdtune, script, page, tmp_path):
    # Until it is told: opening a dashboard takes as long as the machine is busy.
    script(TRAIN.replace("while True", "while not os.path.exists('end')"))
    job = hvdtune("run", "-np", "2", "-o", "kept", "--timeline-steps", "0:", "train.py")
    for _ in range(2):
        job.stdout.readline()
    watching = hvdtune("dashboard", "--attach", "kept", "--port", "0", "--no-browser")
    link = link_of(watching)
    page.goto(link)
    page.goto(link.split("?")[0] + "live")
    wait_for_steps(page, 50)
    (tmp_path / "end").touch()
    page.wait_for_function(
        "() => document.getElementById('live-note')?.textContent.includes('has ended')",
    )
    assert steps_shown(page) > 50, page.locator("#live-note").inner_text()


@pytest.mark.parametrize(
    "words", [(), pytest.param(("one", "runs/one/trace.json"), marks=pytest.mark.slow)]
)
def test_the_newest_runs_or_those_of_a_path_are_shown(hvdtune, script, words):
    script("init()\nfor _ in range(20): step()")
    run = hvdtune("run", "-np", "2", "-o", "runs/one", "--timeline-steps", "0:", "train.py")
    _, err = run.communicate()
    assert run.returncode == 0, err
    shown = hvdtune("dashboard", *words, "--port", "0", "--no-browser")
    link = link_of(shown)
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(link) as page:
        assert page.status == 200
    shown.send_signal(signal.SIGINT)
    shown.communicate()
    assert shown.returncode == 0


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "there are no runs in"),
        (["nowhere.json"], "nowhere.json: no such file or directory"),
        (["--attach", "nowhere"], "is neither a process id nor a run folder"),
        (["--attach", "1"], "is not a job that `hvdtune run` started on this machine"),
    ],
)
def test_what_cannot_be_shown_is_one_line(call, words, fault):
    code, out, err = call("dashboard", *words, "--port", "0", "--no-browser")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and fault in err
