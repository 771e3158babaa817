"""The times that docs/deadlines.md promises are the code's."""

from pathlib import Path

import pytest

from hvdtune.core.config.environment import Config
from hvdtune.core.rank.in_flight import WAIT_SLICE_S
from hvdtune.launcher import frames, ranks
from hvdtune.tuner.process import supervisor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deadlines.md").read_text()
DEFAULTS = Config.from_environ({}, knobs=()).timeouts


BINDING = "".join(path.read_text() for path in ROOT.glob("csrc/bindings/*.cc"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("start_timeout_s", DEFAULTS.start_s),
        ("heartbeat_timeout_s", DEFAULTS.heartbeat_s),
        ("hang_warning_s", DEFAULTS.hang_warning_s),
        ("hang_abort_s", DEFAULTS.hang_abort_s),
    ],
)
def test_the_defaults_are_those_of_the_configuration_and_of_the_core(name, value):
    assert f"| `HVDTUNE_{name.upper()}` | {value:g} |" in PAGE
    assert f'"{name}", {value:.1f}' in BINDING


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        pytest.param(
            ranks.JobOptions.heartbeat_timeout_s,
            "| `HVDTUNE_HEARTBEAT_TIMEOUT_S` | {:g} |",
            id="a launcher's heartbeats",
        ),
        pytest.param(
            supervisor._FROZEN_S,
            "| it continues, or ends; then another one is started | {:g} s |",
            id="a launcher waits for a tuner",
        ),
        pytest.param(frames.BEAT_S, "a word every {:g} s", id="a launcher's word to other hosts"),
        pytest.param(frames.SILENCE_S, "without a word | {:g} s;", id="a silent launcher"),
        pytest.param(WAIT_SLICE_S, "looks for Ctrl-C every {:g} s", id="callers look for Ctrl-C"),
    ],
)
def test_the_fixed_times_are_those_of_the_scripts(seconds, said):
    assert said.format(seconds) in PAGE


@pytest.mark.parametrize(
    ("source", "constant", "said"),
    [
        ("transport/mesh.cc", "kReasonTime = std::chrono::seconds(2)", "the server's reason"),
        ("transport/handshake.cc", "kHandshakeNs = 5'000'000'000", "it is closed, others continue"),
        ("transport/exchange.cc", "kCheckMs = 100", "looked at every 100 ms"),
        ("transport/shm/arena.cc", "kSliceNs = 20'000'000", "is seen within 20 ms"),
        (
            "transport/shm/arena.cc",
            "kLostRankPatience = std::chrono::milliseconds(100)",
            "100 ms for the lost rank",
        ),
        ("runtime/health/health.h", "kStarvedTimeouts = 15", "| 15 heartbeat timeouts |"),
        (
            "runtime/health/health.cc",
            "kProberNs = 200 * kMillisecond",
            "heartbeat timeout and 0.2 s",
        ),
        ("runtime/health/health.cc", "500 * kMillisecond)", "the next heartbeat | 0.5 s"),
        ("runtime/health/health.cc", "? 200 : 1000", "the news of a lost rank | 1 s; 0.2 s"),
        ("runtime/runtime.cc", "Loss = std::chrono::milliseconds(200)", "0.2 s after a loss"),
        (
            "runtime/steering/launcher_link.cc",
            "kLauncherTimeout = std::chrono::seconds(2)",
            "| 2 s in which",
        ),
        ("runtime/health/hang_detector.cc", "kLeastShare = 30", "a thirtieth of a processor"),
        ("runtime/health/hang_detector.cc", "kProofNs = kSecond", "nothing has moved for 1 s"),
        ("timeline/recording.h", "timeout = std::chrono::seconds(5)", "| 5 s; then the writer"),
    ],
)
def test_the_fixed_times_are_those_of_the_core(source, constant, said):
    assert constant in (ROOT / "csrc" / source).read_text()
    assert said in PAGE


def test_every_wait_of_the_core_is_bounded_or_listed_as_ended_by_the_stop_signal():
    """A new wait without a deadline must be a decision: these files wait for the stop signal."""
    waits = {
        path.relative_to(ROOT / "csrc").as_posix()
        for path in ROOT.glob("csrc/**/*.cc")
        if "Deadline::never()" in path.read_text()
    }
    known = {
        "collective/transfer_queue.cc",
        "collective/group.cc",
        "mpi/backend.cc",
        "runtime/tree_channels.cc",
        "transport/handshake.cc",
        "transport/mesh.cc",
        "transport/rendezvous.cc",
    }
    assert waits <= known
