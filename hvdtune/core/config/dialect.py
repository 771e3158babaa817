"""A dialect: the variables by which one launcher tells a process its place. Pure.

The dialects themselves are in `hvdtune.core.config.dialects`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from hvdtune import parse
from hvdtune.errors import UsageError
from hvdtune.plural import counted

Environ = Mapping[str, str]
# The end of a sentence about a variable that cannot be.
REMEDY: Final = "set it right, or HVDTUNE_STARTED_BY=none for a process alone"
T = TypeVar("T")

_BRACKETS: Final = re.compile(r"([^\[\],]*)\[([^\]]*)\]")
_REPEATED: Final = re.compile(r"(\d+)\(x(\d+)\)")
# Beyond both a number is a mistake, which costs all memory where it is believed.
MOST_RANKS: Final = 1_000_000
MOST_HOSTS: Final = 100_000


@dataclass(frozen=True)
class ToldPlace:
    """What a dialect says about this process; None and "" where it says nothing.

    `hosts` starts with the host of rank 0; `hosts_file` names a file with one host on each line.
    `job` is the same on all processes that were started together, and on no others. `is_node`: the
    dialect counts hosts, with one process on each. `rank_by` and `size_by` are the variables, for
    messages. `remark` is a sentence for the user about a place that is probably not meant.
    """

    dialect: str
    title: str
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    cross_rank: int | None = None
    cross_size: int | None = None
    host: str = ""
    hosts: tuple[str, ...] = ()
    hosts_file: str = ""
    job: str = ""
    is_node: bool = False
    rank_by: str = ""
    size_by: str = ""
    remark: str = ""

    @property
    def told_by(self) -> str:
        """The variables of rank and size, each once, as in `RANK and WORLD_SIZE`."""
        return " and ".join(dict.fromkeys(filter(None, (self.rank_by, self.size_by))))

    def require_complete(self) -> None:
        """Raises UsageError where only one of rank and size is told."""
        if (self.rank is None) == (self.size is None):
            return
        if not self.size_by:
            raise UsageError(
                f"{self.rank_by} is set, but nothing says how many ranks there are: start them by "
                "what says it, as mpirun and srun do, or set HVDTUNE_STARTED_BY=none for a "
                "process alone"
            )
        names = [self.rank_by, self.size_by]
        told, missing = names if self.size is None else names[::-1]
        raise UsageError(
            f"{told} is set, but not {missing}, although {self.title} sets both: {REMEDY}"
        )

    def require_local_rank(self) -> None:
        """Raises UsageError for a local rank that cannot be."""
        number, ranks = self.local_rank, self.local_size
        if number is not None and ranks is not None and number >= ranks:
            raise UsageError(
                f"{self.title} says that this is local rank {number}, but also that its host has "
                f"{counted(ranks, 'rank')}: {REMEDY}"
            )

    @property
    def is_on_one_host(self) -> bool:
        """Whether all processes are known to be on one host."""
        return self.size is not None and self.size in (1, self.local_size)


def _nothing(_: Environ) -> str:
    return ""


def _no_hosts(_: Environ) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Dialect:
    """One row of the table: how a launcher is recognised, and what its variables are called.

    Of several names the first that is set counts. Without `present` the dialect is recognised by
    any of the variables of rank and size. `hides` names the dialects whose values may differ,
    because their launcher starts this one, or is started by it to reach other hosts. `place`
    derives rank and size where no variable has them as such. `fault` says what is wrong where the
    dialect does not tell a place although its variables say that there are several processes, or
    cannot be, "" for nothing. `remedy` is what to do about a number that cannot be. `mpi` is the
    flavour of MPI that has such ranks, None for none. A dialect that does not form jobs is read by
    scripts only.
    """

    name: str
    title: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    cross_rank: tuple[str, ...] = ()
    cross_size: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    hosts_file: tuple[str, ...] = ()
    hosts: Callable[[Environ], tuple[str, ...]] = _no_hosts
    job: Callable[[Environ], str] = _nothing
    place: Callable[[Environ], dict[str, int]] | None = None
    present: Callable[[Environ], bool] | None = None
    fault: Callable[[Environ], str] = _nothing
    remedy: str = REMEDY
    hides: frozenset[str] = frozenset()
    is_node: bool = False
    mpi: str | None = None
    forms_jobs: bool = True

    def read(self, env: Environ) -> ToldPlace | None:
        """What `env` says in this dialect, None where it does not speak it.

        Raises UsageError naming the variable whose value cannot be.
        """
        names = (*self.rank, *self.size)
        here = self.present(env) if self.present else any(env.get(name) for name in names)
        if not here:
            return None
        derived = self.place(env) if self.place else {}

        def number(field: str, names: tuple[str, ...]) -> int | None:
            return derived[field] if field in derived else whole_of(env, names, self.remedy)

        told = ToldPlace(
            self.name,
            self.title,
            rank=number("rank", self.rank),
            size=number("size", self.size),
            local_rank=number("local_rank", self.local_rank),
            local_size=number("local_size", self.local_size),
            cross_rank=number("cross_rank", self.cross_rank),
            cross_size=number("cross_size", self.cross_size),
            host=first_of(env, self.host),
            hosts=self.hosts(env),
            hosts_file=first_of(env, self.hosts_file),
            job=self.job(env),
            is_node=self.is_node,
            rank_by=_name_of(env, self.rank),
            size_by=_name_of(env, self.size),
        )
        if told.size == 0:
            raise UsageError(f"{told.size_by}=0 cannot be: {self.remedy}")
        if told.rank is not None and told.size is not None and told.rank >= told.size:
            what = "a number of a host, from 0 on, of" if told.is_node else "a rank of"
            raise UsageError(
                f"{told.rank_by}={told.rank} is not {what} {told.size_by}={told.size}: "
                f"{self.remedy}"
            )
        return told


def first_of(env: Environ, names: tuple[str, ...]) -> str:
    """The value of the first of these variables that is set, "" for none."""
    return next((env[name] for name in names if env.get(name)), "")


def whole_of(env: Environ, names: tuple[str, ...], remedy: str = REMEDY) -> int | None:
    """The number in the first of these variables that is set. Raises UsageError naming it."""
    for name in names:
        if env.get(name):
            try:
                number = parse.whole(env[name])
            except ValueError as error:
                raise UsageError(f"{name}={env[name]} {error}: {remedy}") from None
            if number > MOST_RANKS:
                raise UsageError(
                    f"{name}={env[name]} is more than {MOST_RANKS}, the most ranks of a job: "
                    f"{remedy}"
                )
            return number
    return None


def hosts_in(env: Environ, names: tuple[str, ...]) -> tuple[str, ...]:
    """The hosts that the first of these variables that is set has in Slurm's short form.

    Raises UsageError naming it where they are too many.
    """
    return _in_short_form(env, names, expand_hosts)


def counts_in(env: Environ, names: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers that the first of these variables that is set has in Slurm's short form.

    Raises UsageError naming it where they are too many.
    """
    return _in_short_form(env, names, repeated_counts)


def _in_short_form(
    env: Environ, names: tuple[str, ...], expand: Callable[[str], tuple[T, ...]]
) -> tuple[T, ...]:
    try:
        return expand(first_of(env, names))
    except ValueError as error:
        name = _name_of(env, names)
        raise UsageError(f"{name}={env[name]} {error}: {REMEDY}") from None


def joined(env: Environ, *names: str) -> str:
    """The values of all these variables, "" unless every one is set."""
    values = [env.get(name, "") for name in names]
    return "/".join(values) if all(values) else ""


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts of Slurm's short form, as in `login,node[1-3,07]-ib`. Pure.

    Raises ValueError, with the end of a sentence, for more than MOST_HOSTS.
    """
    hosts: list[str] = []
    for part in _outer_parts(text):
        stems = [""]
        rest = part
        while match := _BRACKETS.match(rest):
            numbers = [number for piece in match[2].split(",") for number in _range(piece)]
            _require_few(len(stems) * len(numbers))
            stems = [f"{stem}{match[1]}{number}" for stem in stems for number in numbers]
            rest = rest[match.end() :]
        hosts += [stem + rest for stem in stems]
        _require_few(len(hosts))
    return tuple(hosts)


def repeated_counts(text: str) -> tuple[int, ...]:
    """The numbers of Slurm's short form, as in `4(x2),3` for 4, 4 and 3. Pure.

    Raises ValueError, with the end of a sentence, where they are of more than MOST_HOSTS.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _REPEATED.fullmatch(part)
        if match:
            _require_few(len(counts) + int(match[2]))
            counts += [int(match[1])] * int(match[2])
        elif part.isdigit():
            counts.append(int(part))
        else:
            return ()
    return tuple(counts)


def _outer_parts(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _range(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    if not dash or not (first.isdigit() and last.isdigit()):
        return [text]
    width = len(first)
    _require_few(int(last) - int(first) + 1)
    return [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]


def _require_few(hosts: int) -> None:
    if hosts > MOST_HOSTS:
        raise ValueError(f"has more than {MOST_HOSTS} hosts")


def _name_of(env: Environ, names: tuple[str, ...]) -> str:
    return next((name for name in names if env.get(name)), names[0] if names else "")
