"""Time lost between hosts: a slow link, streams, one level of reduction where two would pay."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.horovod.vocabulary import ALLREDUCE_ROUTES
from hvdtune.timeline.analysis.findings.buckets import exposed_phase_ms
from hvdtune.timeline.analysis.findings.finding import (
    LESS_OFTEN,
    OF_RANKS,
    SEND_LESS,
    StepCost,
    TraceEvidence,
    TraceFinding,
    cost_of,
)
from hvdtune.timeline.analysis.metrics.breakdown import of_each_rank, spans_of
from hvdtune.timeline.analysis.metrics.critical_path import path_rows
from hvdtune.timeline.model.intervals import covered_ns, covered_within

NETWORK_SHARE = 0.5  # of the communication that nothing hides
STANDS_OUT = 2.0  # as long as for any other rank is waited for its part alone
MUCH_PERCENT = 10.0  # of a step
FAR_BELOW = 0.5  # of what a link can carry
LINKS = {"slow-link", "hierarchy-off", "channels"}


def find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Find at most one, because with the network as the bottleneck these explain each other."""
    if _mostly_exchanges(evidence) is None:
        return
    found = [*_slow_link(evidence), *_flat(evidence), *_streams(evidence)]
    yield from [finding for finding in found if finding.cost.matters][:1]


def find_rest(evidence: TraceEvidence, found: Sequence[TraceFinding]) -> Iterator[TraceFinding]:
    """Bytes that have to travel: what other findings of communication would not save."""
    exchanged = _mostly_exchanges(evidence)
    if exchanged is None or any(row.kind in LINKS for row in found):
        return
    others_ms = sum(row.cost.mean for row in found if row.kind not in OF_RANKS)
    of_bytes = exchanged * _bytes_share(evidence)
    cost = cost_of(np.maximum(of_bytes - others_ms, 0.0), evidence.step_ms)
    if cost.matters and cost.percent >= MUCH_PERCENT:
        lost_ms = sum(row.cost.mean for row in found if row.kind == "oversubscribed")
        yield _bound_by_network(evidence, cost, lost_ms)


def _mostly_exchanges(evidence: TraceEvidence) -> NDArray[np.float64] | None:
    """ms of each step that nothing hides, if that is most of what nothing hides."""
    if len(set(evidence.job.hosts.values())) < 2:
        return None
    exchanged = exposed_phase_ms(evidence, ("EXCHANGE",))
    cost = cost_of(exchanged, evidence.step_ms)
    exposed = float(path_rows(evidence.steps)["exposed_ms"].mean())
    return exchanged if cost.matters and cost.mean >= NETWORK_SHARE * exposed else None


def _bytes_share(evidence: TraceEvidence) -> float:
    """Which share of the time in buckets is due to their bytes, by the model of what they cost."""
    rows = evidence.events[evidence.events["kind"] == "BUCKET"]
    costs, size = evidence.costs, rows["arg"].to_numpy()
    rest = costs.bucket_ms * len(rows) + costs.tensor_ms * rows["seq"].sum()
    of_bytes = float(size.sum() * costs.byte_ms)
    return of_bytes / (of_bytes + float(rest)) if of_bytes else 0.0


def exchange_share(evidence: TraceEvidence) -> float:
    """Which part of the time in buckets is exchanges with other hosts, those hidden by computing
    included."""
    shares = []
    for _, events in of_each_rank(evidence.events):
        exchange, bucket = (
            covered_ns(*spans_of(events, (kind,))) for kind in ("EXCHANGE", "BUCKET")
        )
        shares.append(min(exchange / max(bucket, 1), 1.0))
    return float(np.mean(shares))


def _slow_link(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Needs three ranks: of two, each waits for the other, whoever is slow."""
    waits = waits_for_peers(evidence)
    if waits.shape[1] < 3:
        return
    means = waits.mean(axis=0)
    named = int(np.argmax(means))
    usual = np.delete(waits, named, axis=1)
    longer = float(means[named]) / max(float(usual.mean(axis=0).max()), 1e-9)
    more = float((waits[:, named] - np.median(usual, axis=1)).mean())
    in_buckets = float(evidence.part("communicate_ms").mean())
    cost = evidence.saved_by_shorter(min(more / max(in_buckets, 1e-9), 1.0))
    if longer < STANDS_OUT:
        return
    rank = int(evidence.busy.columns[named])
    host = evidence.job.hosts.get(rank, "its host")
    yield TraceFinding(
        kind="slow-link",
        ranks=(rank,),
        cost=cost,
        summary=f"the link of rank {rank} ({host}) is slow: the others wait only for its part",
        evidence=(
            f"the other ranks wait {waits[:, named].mean():.2f} ms per step (mean) only for rank "
            f"{rank}'s part of an exchange",
            f"they wait at most {float(usual.mean(axis=0).max()):.2f} ms for any other rank",
        ),
        remedy=f"check the network of {host}: speed, duplex, errors, other traffic",
        confidence="medium",
    )


def waits_for_peers(evidence: TraceEvidence) -> NDArray[np.float64]:
    """ms of each step in which other ranks' exchanges lacked but one rank's part.

    Returns:
        A row per step, a column per rank that was waited for; the mean over those that waited.
    """
    ranks = [int(rank) for rank in evidence.busy.columns]
    rows = evidence.events[evidence.events["kind"] == "PEER"]
    waits = np.zeros((len(evidence.busy), len(ranks)))
    for index, rank in enumerate(ranks):
        for waiter, own in rows[rows["seq"] == rank].groupby("rank"):
            windows = evidence.steps[evidence.steps["rank"] == waiter].set_index("step")
            windows = windows.loc[evidence.busy.index]
            begin, end = windows["begin_ns"].to_numpy(), windows["end_ns"].to_numpy()
            spans = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
            waits[:, index] += covered_within(spans[0], spans[1], begin, end) / 1e6
    return waits / max(len(ranks) - 1, 1)


def _flat(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    setting, hosts = evidence.job.setting, pd.Series(dict(evidence.job.hosts))
    sizes = hosts.value_counts()
    per_host = int(sizes.min())
    on = any(setting.get(knob, False) for knob in ALLREDUCE_ROUTES)
    if on or per_host < 2 or sizes.nunique() > 1:
        return
    crossing = crossing_bytes(len(hosts), per_host)
    share = exchange_share(evidence)
    cost = evidence.saved_by_shorter(share * (1 - 1 / crossing))
    yield TraceFinding(
        kind="hierarchy-off",
        ranks=(),
        cost=cost,
        summary=f"{per_host} ranks of each host send the same bytes between hosts",
        evidence=(
            f"{100 * share:.0f} % of the time in buckets is spent on exchanges between hosts",
            f"reducing within hosts first sends {crossing:.1f} times fewer bytes over a host's "
            "link",
        ),
        remedy="reduce within each host first, then between hosts: --hierarchical-allreduce",
        knob="hierarchical_allreduce",
        confidence="medium",
    )


def crossing_bytes(ranks: int, per_host: int) -> float:
    """Bytes that cross a host's link by direct exchange, over those by two levels.

    Direct: each rank sends every rank of other hosts 1/n of the tensor, twice (reduce, then share).
    Two levels: a host sends its partial sum of what others reduce, and its part of the result.
    """
    hosts = ranks // per_host
    flat = 2 * per_host * (ranks - per_host) / ranks
    levels = 2 * (hosts - 1) / hosts
    return flat / levels


def _streams(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    limit = evidence.job.link_gbps
    rows = evidence.events[evidence.events["kind"] == "EXCHANGE"]
    channels = evidence.job.setting.get("channels", 1)
    if limit is None or rows.empty:
        return
    rate = _rate_gbps(rows)
    if rate > FAR_BELOW * limit:
        return
    cost = evidence.saved_by_shorter(exchange_share(evidence) * (1 - rate / limit))
    other = "1" if isinstance(channels, int) and channels > 4 else "4 or 8"
    yield TraceFinding(
        kind="channels",
        ranks=(),
        cost=cost,
        summary=f"with HVDTUNE_CHANNELS={channels}, links carry {rate:.2f} of {limit:g} Gbit/s",
        evidence=(
            "all ranks' exchanges are about equally slow, so no single link is at fault",
            f"the links' limit is {limit:g} Gbit/s (--link-gbps)",
        ),
        remedy=f"set HVDTUNE_CHANNELS={other}, or tune it with hvdtune run --mode restart",
        knob="channels",
        confidence="low",
    )


def _bound_by_network(evidence: TraceEvidence, cost: StepCost, lost_ms: float) -> TraceFinding:
    """`lost_ms`: of processor time per step, which ranks lack."""
    rate = _rate_gbps(evidence.events[evidence.events["kind"] == "EXCHANGE"])
    hosts = ", ".join(sorted(set(evidence.job.hosts.values()))[:4])
    return TraceFinding(
        kind="network",
        ranks=(),
        cost=cost,
        summary=f"steps wait for bytes between hosts, which travel at {rate:.2f} Gbit/s",
        evidence=(
            f"{cost.mean:.2f} ms per step are due to the bytes of exposed exchanges "
            f"between {hosts}",
            "no single link is slow; pass --link-gbps to compare the rate with the links' limit",
            *(
                [
                    f"ranks also lack {lost_ms:.2f} ms of processor time per step, which delays "
                    "exchanges, too"
                ]
                * (lost_ms > 0)
            ),
        ),
        remedy=f"{SEND_LESS} or {LESS_OFTEN}, or use a faster network",
        confidence="low" if lost_ms > cost.mean / 2 else "medium",
    )


def _rate_gbps(rows: pd.DataFrame) -> float:
    """The rate of one direction of a rank's link while it exchanges: transfers count both."""
    lasted = (rows["end_ns"] - rows["begin_ns"]).groupby(rows["rank"]).sum()
    moved = rows["arg"].groupby(rows["rank"]).sum()
    return float((8 * moved / 2 / lasted.clip(lower=1)).median())
