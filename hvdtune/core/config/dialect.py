"""A dialect: the variables that describe a process's place for one launcher. Pure.

The table of dialects is in `hvdtune.core.config.dialects`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hvdtune import parse
from hvdtune.errors import UsageError
from hvdtune.plural import capitalized, counted

Environ = Mapping[str, str]
REMEDY: Final = "Correct it, or set HVDTUNE_STARTED_BY=none for a single process"
T = TypeVar("T")

_BRACKETS: Final = re.compile(r"([^\[\],]*)\[([^\]]*)\]")
_REPEATED: Final = re.compile(r"(\d+)\(x(\d+)\)")
# A larger number is a mistake, which would use up all memory.
MOST_RANKS: Final = 1_000_000
MOST_HOSTS: Final = 100_000


@dataclass(frozen=True)
class LauncherPlace:
    """The place of this process by one dialect.

    Attributes:
        dialect: name of its row.
        title: name of the launcher, for messages.
        rank, size, local_rank, local_size, cross_rank, cross_size: None if not set.
        host: name of this process's host, "" if not set.
        hosts: all hosts, the one of rank 0 first.
        hosts_file: file with one host per line.
        job: name that all processes of one start share, and no others.
        is_node: the dialect counts hosts, with one process on each.
        rank_by, size_by: the variables of rank and size, for messages.
        remark: warning about a place that is probably not intended.
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
    def source(self) -> str:
        """The variables of rank and size, each once, as in `RANK and WORLD_SIZE`."""
        return " and ".join(dict.fromkeys(filter(None, (self.rank_by, self.size_by))))

    def require_complete(self) -> None:
        """Raises UsageError if only one of rank and size is set."""
        if (self.rank is None) == (self.size is None):
            return
        if not self.size_by:
            raise UsageError(
                f"{self.rank_by} is set, but the number of ranks is not. Use a launcher that sets "
                "it (mpirun, srun), or set HVDTUNE_STARTED_BY=none for a single process"
            )
        names = [self.rank_by, self.size_by]
        found, missing = names if self.size is None else names[::-1]
        raise UsageError(
            f"{found} is set, but {missing} is not. {capitalized(self.title)} sets both. {REMEDY}"
        )

    def require_local_rank(self) -> None:
        """Raises UsageError for a local rank that is not below the local size."""
        number, ranks = self.local_rank, self.local_size
        if number is not None and ranks is not None and number >= ranks:
            raise UsageError(
                f"{self.title} sets local rank {number} on a host with "
                f"{counted(ranks, 'rank')}. {REMEDY}"
            )

    @property
    def is_on_one_host(self) -> bool:
        """True if all processes are known to be on one host."""
        return self.size is not None and self.size in (1, self.local_size)


def _no_more(_: Environ) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Dialect:
    """One row of the table: the names of a launcher's variables.

    `A|B` is the first of these variables that is set.

    Attributes:
        needs: variables that must all be set. [default: the first one of `rank`]
        job: returns the name of the job.
        more: returns fields of LauncherPlace that no variable has as such, None for no place.
            Raises ValueError for values that do not fit together.
        ignored: returns True if the variables belong to something else.
        remedy: last sentence of a message about a wrong number.
        hides: dialects whose numbers do not count, because one launcher may start the other.
        is_node: as of LauncherPlace.
        mpi: flavour of MPI of such ranks, "" for any, None for none.
        forms_jobs: False for a dialect that only scripts read.
    """

    name: str
    title: str
    rank: str
    size: str = ""
    local_rank: str = ""
    local_size: str = ""
    cross_rank: str = ""
    cross_size: str = ""
    host: str = ""
    hosts_file: str = ""
    first_host: str = ""
    needs: tuple[str, ...] = ()
    job: Callable[[Environ], str] = lambda _: ""
    more: Callable[[Environ], dict[str, Any] | None] = _no_more
    ignored: Callable[[Environ], bool] = lambda _: False
    remedy: str = REMEDY
    hides: frozenset[str] = frozenset()
    is_node: bool = False
    mpi: str | None = None
    forms_jobs: bool = True

    def read(self, env: Environ) -> LauncherPlace | None:
        """Return the place that `env` describes in this dialect, None for none.

        Raises UsageError naming the variable with a wrong value.
        """
        try:
            more = None if self.ignored(env) or self.missing(env) else self.more(env)
        except UsageError:
            raise
        except ValueError:
            return None  # reported by `fault` if no other dialect describes a place
        if more is None:
            return None
        numbers = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        fields: dict[str, Any] = {
            name: whole_of(env, getattr(self, name), self.remedy)
            for name in numbers
            if name not in more
        }
        first = first_of(env, self.first_host)
        place = LauncherPlace(
            self.name,
            self.title,
            **{
                "host": first_of(env, self.host),
                "hosts": (first,) if first else (),
                "hosts_file": first_of(env, self.hosts_file),
                "job": self.job(env),
                "is_node": self.is_node,
                "rank_by": name_of(env, self.rank),
                "size_by": name_of(env, self.size),
                **fields,
                **more,
            },
        )
        if place.size == 0:
            raise UsageError(f"{place.size_by} is 0. {self.remedy}")
        if place.rank is not None and place.size is not None and place.rank >= place.size:
            raise UsageError(
                f"{place.rank_by}={place.rank} is out of range: {place.size_by} is {place.size}, "
                f"so {'hosts' if place.is_node else 'ranks'} are numbered 0 to {place.size - 1}. "
                f"{self.remedy}"
            )
        return place

    def missing(self, env: Environ) -> list[str]:
        """Return the variables that must be set and are not."""
        needs = self.needs or (self.rank.partition("|")[0],)
        return [names.replace("|", " or ") for names in needs if not first_of(env, names)]

    def fault(self, env: Environ) -> str:
        """Return a sentence if variables of several processes are set only in part, or wrong."""
        if self.ignored(env):
            return ""
        try:
            self.more(env)
        except UsageError:
            pass  # only of interest to a process that has a place
        except ValueError as error:
            return str(error)
        missing = self.missing(env)
        least = {self.rank: 1, self.size: 2, self.local_rank: 1, self.local_size: 2}
        for names, number in least.items():
            name = names.partition("|")[0]
            # Only a user with several hosts sets HVDTUNE_NODE, so 0 counts, too.
            if missing and (number_in(env, name) >= number or name == "HVDTUNE_NODE" in env):
                verb = "is" if len(missing) == 1 else "are"
                return f"{name} is {env[name]}, but {listed(missing)} {verb} not set"
        return ""


def listed(names: Sequence[str]) -> str:
    """Return the names in one phrase, as in `A, B and C`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def name_of(env: Environ, names: str) -> str:
    """Return the first of the variables in `A|B` that is set, else the first one."""
    each = names.split("|")
    return next((name for name in each if env.get(name)), each[0])


def first_of(env: Environ, names: str) -> str:
    """Return the value of the first of the variables in `A|B` that is set, "" for none."""
    return env.get(name_of(env, names), "")


def number_in(env: Environ, name: str) -> int:
    """Return the number in a variable, -1 for anything else."""
    text = env.get(name, "")
    return int(text) if text.isdecimal() else -1


def whole_of(env: Environ, names: str, remedy: str = REMEDY) -> int | None:
    """Return the number in the first of the variables in `A|B` that is set.

    Raises UsageError naming the variable.
    """
    name, text = name_of(env, names), first_of(env, names)
    if not text:
        return None
    try:
        number = parse.whole(text)
    except ValueError as error:
        raise UsageError(f"{name}={text} {error}. {remedy}") from None
    if number > MOST_RANKS:
        raise UsageError(f"{name}={text} is more than {MOST_RANKS} ranks. {remedy}")
    return number


def expanded(env: Environ, names: str, expand: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
    """Expand the first of the variables in `A|B` that is set. Raises UsageError naming it."""
    try:
        return expand(first_of(env, names))
    except ValueError as error:
        raise UsageError(
            f"{name_of(env, names)}={first_of(env, names)} {error}. {REMEDY}"
        ) from None


def joined(env: Environ, *names: str) -> str:
    """Return the values of all these variables, "" unless every one is set."""
    values = [env.get(name, "") for name in names]
    return "/".join(values) if all(values) else ""


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of Slurm's short form, as in `login,node[1-3,07]-ib`. Pure.

    Raises ValueError, with the end of a sentence, for more than MOST_HOSTS.
    """
    hosts: list[str] = []
    # Split at the commas outside of brackets.
    for part in filter(None, re.split(r",(?![^\[]*\])", text)):
        stems, rest = [""], part
        while match := _BRACKETS.match(rest):
            numbers = [number for piece in match[2].split(",") for number in _range(piece)]
            _require_few(len(stems) * len(numbers))
            stems = [f"{stem}{match[1]}{number}" for stem in stems for number in numbers]
            rest = rest[match.end() :]
        hosts += [stem + rest for stem in stems]
        _require_few(len(hosts))
    return tuple(hosts)


def repeated_counts(text: str) -> tuple[int, ...]:
    """Return the numbers of Slurm's short form, as in `4(x2),3` for 4, 4 and 3. Pure.

    Raises ValueError, with the end of a sentence, for more than MOST_HOSTS numbers.
    """
    counts: list[int] = []
    for part in text.split(","):
        if match := _REPEATED.fullmatch(part):
            _require_few(len(counts) + int(match[2]))
            counts += [int(match[1])] * int(match[2])
        elif part.isdigit():
            counts.append(int(part))
        else:
            return ()
    return tuple(counts)


def _range(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    if not dash or not (first.isdigit() and last.isdigit()):
        return [text]
    _require_few(int(last) - int(first) + 1)
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]


def _require_few(hosts: int) -> None:
    if hosts > MOST_HOSTS:
        raise ValueError(f"has more than {MOST_HOSTS} hosts")
