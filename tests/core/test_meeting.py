"""How the ranks of a job find each other that another launcher has started."""

import dataclasses
import json
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from hvdtune.core.config import meeting_point
from hvdtune.core.config.dialect import LauncherPlace
from hvdtune.core.config.meeting_point import FIRST_PORT, PORTS, MeetingPoint, read_meeting_point
from hvdtune.core.job import meeting, starter
from hvdtune.core.job.job_file import JobFile
from hvdtune.errors import HvdtuneError, RendezvousError, UsageError
from tests.kit.configs import make_config

_PLACE = LauncherPlace(
    "slurm", "srun", 1, 2, local_size=2, rank_by="SLURM_PROCID", size_by="SLURM_NTASKS"
)
_KEY = "ab" * 32


def point(folder, rank=1, job="7.0", **changes):
    place = LauncherPlace(
        "slurm", "srun", rank, 2, local_size=2, rank_by="SLURM_PROCID", size_by="SLURM_NTASKS"
    )
    return MeetingPoint(place, job, Path(folder), **changes)


def config(folder, rank=1, timeout_s=0.3, **changes):
    return make_config(start_s=timeout_s, meeting=point(folder, rank, **changes))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", ["file", "port"])
def test_both_ranks_are_led_to_one_rendezvous(tmp_path, rank, how):
    """`start` stands in for the core, which dials; here it notes where it would."""
    given = {"key": bytes(32)} if how == "port" else {}
    found = {}
    both = threading.Barrier(2)

    def start(joined):
        rank = joined.place.rank
        found[rank] = joined.rendezvous
        both.wait(10)
        if rank == 0:
            raise RendezvousError("enough")  # nobody dials, so that no job forms
        return "started"

    def run(number):
        try:
            meeting.join(config(tmp_path, number, 10, job=how, **given), start)
        except RendezvousError as error:
            assert "enough. srun set rank 0 of 2 by SLURM_PROCID and SLURM_NTASKS. " in str(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in (rank, 1 - rank)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found[0].key == found[1].key and len(found[0].key) == 32
    assert found[0].port == found[1].port != 0
    assert [found[0].address, found[1].address] == ["127.0.0.1"] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_for_its_user_and_goes_with_the_block(tmp_path):
    file = JobFile(tmp_path / "a" / "jobs", "slurm/7.0")
    with file.offered("127.0.0.1:4711", b"k" * 32):
        assert file.path.stat().st_mode & 0o777 == 0o600
        assert file.path.parent.stat().st_mode & 0o777 == 0o700
        offer = file.read()
        assert (offer.address, offer.key) == ("127.0.0.1:4711", b"k" * 32)
        assert "6b" not in repr(offer)
    assert file.read() is None


def test_a_file_that_another_job_has_put_there_since_is_left(tmp_path):
    file = JobFile(tmp_path, "slurm/7.0")
    with file.offered("127.0.0.1:1", b""), file.offered("127.0.0.1:2", b""):
        pass
    with file.offered("127.0.0.1:1", b""):
        other = JobFile(tmp_path, "slurm/7.0").offered("127.0.0.1:2", b"")
        other.__enter__()
    assert file.read().address == "127.0.0.1:2"
    other.__exit__(None, None, None)
    assert file.read() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"address": "a:1"}', '{"address": "a:1", "key": "x", "nonce": "n"}']
)
def test_a_damaged_file_is_none(tmp_path, text):
    file = JobFile(tmp_path, "slurm/7.0")
    file.path.touch(0o600)
    file.path.write_text(text)
    assert file.read() is None


def test_a_file_that_others_can_read_is_refused(tmp_path):
    file = JobFile(tmp_path, "slurm/7.0")
    file.path.write_text("{}")
    file.path.chmod(0o644)
    with pytest.raises(HvdtuneError, match="other users can read it"):
        file.read()


def test_a_file_behind_a_link_is_none(tmp_path):
    file = JobFile(tmp_path, "slurm/7.0")
    target = tmp_path / "elsewhere"
    target.touch(0o600)
    target.write_text(json.dumps({"address": "127.0.0.1:1", "key": "", "nonce": "n"}))
    file.path.symlink_to(target)
    assert file.read() is None


def test_a_folder_in_which_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o777)
    with (
        pytest.raises(UsageError, match="can be written to by other users"),
        JobFile(folder, "slurm/7.0").offered("127.0.0.1:1", b""),
    ):
        pass


def test_files_of_weeks_ago_are_removed(tmp_path):
    old, young = tmp_path / "old.json", tmp_path / "young.json"
    for path in (old, young):
        path.touch()
    long_ago_s = time.time() - 30 * 24 * 3600
    os.utime(old, (long_ago_s, long_ago_s))
    with JobFile(tmp_path, "slurm/7.0").offered("127.0.0.1:1", b""):
        assert young.exists() and not old.exists()


def test_jobs_whose_names_look_alike_have_files_of_their_own(tmp_path):
    names = ["slurm/1.0", "slurm/1/0", "slurm/1.1", "torch/1.0", "x" * 300, "x" * 301]
    assert len({JobFile(tmp_path, name).path for name in names}) == len(names)


def unused_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("there", [False, True], ids=["no-file", "file-of-a-dead-job"])
def test_without_rank_0_the_error_says_where_it_was_looked_for_and_what_to_do(tmp_path, there):
    file = JobFile(tmp_path, "slurm/7.0")
    address = unused_address()
    left = file.offered(address, b"k" * 32)
    if there:
        left.__enter__()
    with pytest.raises(RendezvousError) as error:
        meeting.join(config(tmp_path), pytest.fail)
    said = str(error.value)
    assert f"No file of rank 0 at {file.path} within 0.3 s" in said
    assert (f"the file there names {address}, which does not answer" in said) == there
    assert "HVDTUNE_SHARED_FOLDER" in said and "HVDTUNE_STARTED_BY=none" in said
    assert "SLURM_PROCID and SLURM_NTASKS" in said


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "HVDTUNE_KEY to the same key on all ranks. "),
        ({"key": bytes(32)}, "HVDTUNE_RENDEZVOUS_HOST to the host of rank 0, which makes"),
    ],
)
def test_what_makes_the_file_needless_is_told(tmp_path, given, advice):
    lost = config(tmp_path, **given)
    met = lost.rendezvous.meeting
    place = dataclasses.replace(met.place, hosts=(), local_size=None)
    lost = make_config(lost, meeting=dataclasses.replace(met, place=place, host=""))
    with pytest.raises(RendezvousError, match=f" one that they share, or {advice}"):
        meeting.join(lost, pytest.fail)


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RendezvousError, match=r"0\.3 s \(the folder is missing on this host\)"):
        meeting.join(config(tmp_path / "nowhere"), pytest.fail)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_folder_that_the_user_has_named_is_not_made_and_no_rank_waits_for_it(tmp_path, rank):
    environ = {"HVDTUNE_SHARED_FOLDER": str(tmp_path / "typo"), "HVDTUNE_JOB_ID": "7"}
    job = make_config(meeting=read_meeting_point(environ, point("/", rank).place, tmp_path))
    with pytest.raises(UsageError, match=r"typo: No such file or directory\. Set HVDTUNE_SHARED_"):
        meeting.join(job, pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_no_rank_waits_for_a_file_in_a_folder_of_others(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match=r"can be written to by other users\. Set HVDTUNE_SHARED_"):
        meeting.join(config(tmp_path), pytest.fail)


def test_a_name_of_rank_0s_host_may_become_known_while_the_others_wait(monkeypatch):
    """`addresses_of` stands in for the system's resolver, which learns of the name."""
    answers = [socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ["192.0.2.7"]]

    def addresses_of(host):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(meeting.route, "addresses_of", addresses_of)
    monkeypatch.setattr(meeting, "_LAST_LOOK_S", 0.0)
    there = dataclasses.replace(point("/", 1), key=bytes(32), host="node7", port=4000)
    there = dataclasses.replace(there, place=dataclasses.replace(there.place, local_size=None))
    assert meeting.board_of(there, "", 0).await_offer(50.0).address == "192.0.2.7:4000"


def test_a_port_of_another_program_is_not_waited_for():
    """`start` stands in for the core, which finds nobody there that proves himself."""
    tried = []

    def start(joined):
        tried.append(joined.timeouts.start_s)
        raise RendezvousError("nobody answers")

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RendezvousError) as error:
            meeting.join(config("/", 0, 3600, key=bytes(32), port=port), start)
    assert tried == [2]
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use. nobody" in str(error.value)
    assert "set HVDTUNE_RENDEZVOUS_PORT to a free port, the same on all ranks" in str(error.value)
    assert "Rank 0 listens" not in str(error.value)


@pytest.mark.parametrize(
    ("of_rank_0", "given", "said"),
    [
        (b"", {}, r"has a key, and this process has none .*\. HVDTUNE_KEY_FILE or HVDTUNE_KEY"),
        (
            b"k" * 32,
            {"key": bytes(32)},
            r"has no key, and this process has one .*\. HVDTUNE_KEY_FILE or HVDTUNE_KEY",
        ),
    ],
)
def test_a_key_that_one_side_only_was_given_is_told_at_once(tmp_path, of_rank_0, given, said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        lost = config(tmp_path, timeout_s=3600, **given)
        met = lost.rendezvous.meeting
        place = dataclasses.replace(met.place, local_size=1)
        lost = make_config(lost, meeting=dataclasses.replace(met, place=place))
        with (
            JobFile(tmp_path, "slurm/7.0").offered(address, of_rank_0),
            pytest.raises(UsageError, match=said),
        ):
            meeting.join(lost, pytest.fail)


def test_a_file_that_has_led_to_a_job_leads_to_no_other(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with JobFile(tmp_path, "slurm/7.0").offered(address, b"k" * 32):
            meeting.join(config(tmp_path), lambda joined: None)
            with pytest.raises(RendezvousError, match="No file of rank 0"):
                meeting.join(config(tmp_path), pytest.fail)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("7.0", 0), ("7.1", 0)),  # of another step
        (("7.0", 0), ("7.0", 1)),  # of the next init
    ],
)
def test_each_job_has_a_key_of_its_own_though_the_user_has_one(tmp_path, first, second):
    def key_of(job, count):
        where = point(tmp_path, job=job, key=bytes(32))
        found = make_config(generation=count, start_s=1, meeting=where)
        return meeting.join(found, lambda joined: joined.rendezvous.key)[1]

    assert key_of(*first) == key_of(*first) != key_of(*second)
    assert bytes(32) not in (key_of(*first), key_of(*second))


@pytest.mark.parametrize(
    ("environ", "job", "host", "port", "by_port"),
    [
        ({}, "7.0", "a", 0, False),
        ({"HVDTUNE_KEY": _KEY}, "7.0", "a", 0, True),
        ({"HVDTUNE_KEY": _KEY, "HVDTUNE_RENDEZVOUS_PORT": "1234"}, "7.0", "a", 1234, True),
        ({"HVDTUNE_KEY": _KEY, "HVDTUNE_RENDEZVOUS_HOST": "b"}, "7.0", "b", 0, True),
        ({"HVDTUNE_JOB_ID": "mine"}, "mine", "a", 0, False),
    ],
)
def test_the_environment_says_where_the_ranks_meet(tmp_path, environ, job, host, port, by_port):
    place = LauncherPlace("slurm", "srun", 1, 2, hosts=("a", "b"), job="7.0")
    found = read_meeting_point(environ, place, tmp_path)
    assert (found.job, found.host, found.port, found.is_by_port) == (job, host, port, by_port)
    assert found.folder == tmp_path / "jobs"
    assert _KEY not in repr(found)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"HVDTUNE_KEY": "ab"}, "HVDTUNE_KEY is not 64 hexadecimal digits"),
        ({"HVDTUNE_KEY": "z" * 64}, "HVDTUNE_KEY is not 64 hexadecimal digits"),
        ({"HVDTUNE_RENDEZVOUS_PORT": "1"}, "HVDTUNE_RENDEZVOUS_PORT=1 needs a key"),
        (
            {"HVDTUNE_RENDEZVOUS_PORT": "x", "HVDTUNE_KEY": _KEY},
            "PORT=x is not a whole number. Set a port from 1024 to 65535",
        ),
        (
            {"HVDTUNE_RENDEZVOUS_PORT": "70000", "HVDTUNE_KEY": _KEY},
            "PORT=70000 is not a port. Set a port from 1024 to 65535",
        ),
        ({"HVDTUNE_KEY_FILE": "/proc/absent"}, "HVDTUNE_KEY_FILE=/proc/absent does not exist"),
    ],
)
def test_a_meeting_that_cannot_be_is_refused(tmp_path, environ, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_meeting_point(environ, _PLACE, tmp_path)


@pytest.mark.parametrize(
    ("content", "mode", "fault"),
    [
        (bytes(range(32)), 0o600, ""),
        (bytes(range(32)).hex().encode() + b"\n", 0o600, ""),
        (bytes(32), 0o640, "is readable by other users"),
        (
            b"short",
            0o600,
            r"contains 5 bytes, but a key has 32 bytes .*\. Make one: `\(umask",
        ),
        (
            b"z" * 64,
            0o600,
            "contains 64 bytes, but a key has 32 bytes or 64 hexadecimal digits",
        ),
        (b"z" * 999, 0o600, "contains 67 bytes or more, but "),
    ],
)
def test_a_key_file_holds_bytes_or_digits_and_is_its_users(tmp_path, content, mode, fault):
    file = tmp_path / "key"
    file.touch(mode)
    file.write_bytes(content)
    environ = {"HVDTUNE_KEY_FILE": str(file)}
    if fault:
        with pytest.raises(UsageError, match=fault):
            read_meeting_point(environ, _PLACE, tmp_path)
    else:
        assert read_meeting_point(environ, _PLACE, tmp_path).key == bytes(range(32))


def test_a_folder_is_no_key_file(tmp_path):
    with pytest.raises(
        UsageError, match=r"cannot be read \(Is a directory\)\. Make a key in a file "
    ):
        read_meeting_point({"HVDTUNE_KEY_FILE": str(tmp_path)}, _PLACE, tmp_path)


def test_a_key_file_that_is_not_there_is_told_how_to_be_made(tmp_path):
    environ = {"HVDTUNE_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(
        UsageError, match=r"key does not exist\. .*: `\(umask 077; openssl rand -hex"
    ):
        read_meeting_point(environ, _PLACE, tmp_path)


def test_ports_of_jobs_lie_in_their_range_and_are_nobody_elses():
    ports = {point("/", taken=(29500,)).port_of(f"slurm/{job}.0") for job in range(2000)}
    assert min(ports) >= FIRST_PORT and max(ports) < FIRST_PORT + PORTS < 29500
    assert len(ports) > 1500
    first = point("/").port_of("slurm/7.0")
    assert point("/", taken=(first,)).port_of("slurm/7.0") not in (first, 0)


def test_a_job_without_a_name_is_that_of_its_parent_on_one_host_and_refused_on_many(tmp_path):
    assert starter.starter_name(on_one_host=True) == starter.starter_name(on_one_host=True) != ""
    many = LauncherPlace("flux", "flux", 1, 2, local_size=1, rank_by="R", size_by="S")
    job = make_config(start_s=0.1, meeting=MeetingPoint(many, "", tmp_path))
    with pytest.raises(UsageError, match="Set HVDTUNE_JOB_ID, the same on all ranks"):
        meeting.join(job, pytest.fail)


def test_the_ranks_of_hydra_have_its_mpiexec_in_common(monkeypatch):
    words = ["/opt/bin/hydra_pmi_proxy", "--control-port", "login:4711", "--proxy-id", "3"]
    line = b"\0".join(word.encode() for word in words).split(b"\0")
    monkeypatch.setattr(starter, "_words", lambda pid: line)
    assert starter.starter_name(on_one_host=False) == "mpiexec-login:4711"


def test_hosts_of_a_file_are_told_apart_by_more_than_case(tmp_path):
    path = tmp_path / "nodes"
    path.write_text("Node1\nnode1\nnode2\n", encoding="utf-8-sig")
    assert meeting_point._hosts_of_file(str(path)) == ("Node1", "node2")
    path.write_bytes(b"\xff\xfe")
    assert meeting_point._hosts_of_file(str(path)) == ()
