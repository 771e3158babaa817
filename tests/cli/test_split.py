import pytest

from hvdtune.cli.split import split_command
from hvdtune.errors import UsageError

_OPTIONS = {
    "-np": True,
    "--num-proc": True,
    "--lr-free": True,
    "--seed": True,
    "--verbose": False,
    "--hierarchical": False,
    "--no-hierarchical": False,
    "--help": False,
}


@pytest.mark.parametrize(
    ("words", "ours", "command"),
    [
        ("train.py", "", "train.py"),
        ("-np 2 train.py --lr 0.1", "-np 2", "train.py --lr 0.1"),
        ("train.py -np 2 --lr 0.1", "-np 2", "train.py --lr 0.1"),
        ("train.py --lr 0.1 -np 2", "-np 2", "train.py --lr 0.1"),
        ("-np 2 train.py --seed 7 data", "-np 2 --seed 7", "train.py data"),
        ("-np=2 train.py --seed=7 x=1", "-np=2 --seed=7", "train.py x=1"),
        ("--verbose train.py --no-hierarchical", "--verbose --no-hierarchical", "train.py"),
        ("train.py --verbose=1", "", "train.py --verbose=1"),
        ("train.py --seeds 3 --se 4", "", "train.py --seeds 3 --se 4"),
        ("train.py -- --seed 7", "", "train.py --seed 7"),
        ("train.py --seed 1 -- --seed 7 -- x", "--seed 1", "train.py --seed 7 -- x"),
        ("-np 2 -- train.py --seed 7", "-np 2", "train.py --seed 7"),
        ("-np 2 -- train.py -- --seed 7", "-np 2", "train.py -- --seed 7"),
        ("-np 2 python train.py --seed 7", "-np 2", "python train.py --seed 7"),
        ("bash -c train.py --verbose -np 3", "", "bash -c train.py --verbose -np 3"),
        ("./train.sh --help", "", "./train.sh --help"),
        ("--nope train.py", "--nope", "train.py"),
        ("-np 2", "-np 2", ""),
        ("train.py - --verbose", "--verbose", "train.py -"),
        ("", "", ""),
        ("--", "", ""),
    ],
)
def test_options_of_ours_and_of_the_script(words, ours, command):
    assert split_command(words.split(), _OPTIONS) == (ours.split(), command.split())


@pytest.mark.parametrize(
    ("words", "ours", "command"),
    [
        ("-p 2 --range 1 3 train.py -p 2", "-p 2 --range 1 3", "train.py -p 2"),
        ("train.py --seed 1 --range 1 3", "--seed 1", "train.py --range 1 3"),
        ("-p2 -v train.py -v", "-p2 -v", "train.py -v"),
    ],
)
def test_some_options_are_ours_before_the_script_only(words, ours, command):
    options = _OPTIONS | {"-p": 1, "--range": 2, "-v": 0}
    assert split_command(words.split(), options, _OPTIONS) == (ours.split(), command.split())


@pytest.mark.parametrize(
    ("words", "ours", "command"),
    [
        ("--slots 4 train.py", "--slots-per-host 4", "train.py"),
        ("--sl=4 python train.py --sl 3", "--slots-per-host=4", "python train.py --sl 3"),
        ("train.py --slots 4", "", "train.py --slots 4"),
        ("--min-np 2 train.py", "--min-np 2", "train.py"),
        ("--number 2 train.py", "--number", "2 train.py"),
    ],
)
def test_options_of_horovod_may_be_abbreviated_before_the_command(words, ours, command):
    options = _OPTIONS | {"--slots-per-host": 1, "--min-np": 1, "--min-np-more": 1}
    abbreviated = {name: name for name in ("--slots-per-host", "--min-np", "--min-np-more")}
    taken = split_command(words.split(), options, abbreviated=abbreviated)
    assert taken == (ours.split(), command.split())


def test_an_ambiguous_abbreviation_is_refused():
    options = {"--log-file": 1, "--log-level": 1}
    with pytest.raises(UsageError, match="--log is ambiguous: it may mean --log-file, --log-level"):
        split_command(["--log", "2", "train.py"], options, abbreviated={n: n for n in options})


def test_two_spellings_of_an_option_are_not_ambiguous():
    options = {"--min-np": 1, "--min-num-proc": 1}
    words = split_command(["--min", "2", "t.py"], options, abbreviated=dict.fromkeys(options, "m"))
    assert words == (["--min-np", "2"], ["t.py"])


def test_the_value_of_an_option_is_not_mistaken_for_the_command():
    assert split_command(["--seed", "train.py", "run.py"], _OPTIONS) == (
        ["--seed", "train.py"],
        ["run.py"],
    )


@pytest.mark.parametrize("words", ["--seed", "train.py --seed", "--verbose -np"])
def test_an_option_without_its_value_is_a_usage_error(words):
    with pytest.raises(UsageError, match=f"option {words.split()[-1]} needs a value"):
        split_command(words.split(), _OPTIONS)
