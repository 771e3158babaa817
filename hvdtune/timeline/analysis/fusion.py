"""How the runtime fills buckets: the core's planner where it is built, else the same rule here."""

from collections.abc import Sequence

try:
    from hvdtune.timeline import _plan
except ImportError:  # not built: steps are replayed all the same
    _plan = None  # type: ignore[assignment]

NEVER_FUSES = -1


def plan_buckets(
    sizes: Sequence[int], kinds: Sequence[int], threshold_bytes: int
) -> list[list[int]]:
    """Plan the buckets of tensors that are ready together.

    Args:
        sizes: bytes of each tensor.
        kinds: tensors of equal kind may share a bucket; one of `NEVER_FUSES` has its own.
        threshold_bytes: the most that a bucket of several tensors holds; 0 fuses nothing.

    Returns:
        The positions of each bucket's tensors.
    """
    if _plan is not None:
        return _plan.plan_buckets(sizes, kinds, threshold_bytes)
    return plan_in_python(sizes, kinds, threshold_bytes)


def plan_in_python(
    sizes: Sequence[int], kinds: Sequence[int], threshold_bytes: int
) -> list[list[int]]:
    """Plan as `plan_buckets` of `csrc/negotiate/bucket_plan.h` does."""
    buckets: list[list[int]] = []
    open_buckets: dict[int, tuple[list[int], int]] = {}  # by kind, with its bytes
    for index, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        members, held = open_buckets.get(kind, ([], 0))
        if members and held + size <= threshold_bytes:
            members.append(index)
            open_buckets[kind] = members, held + size
            continue
        buckets.append([index])
        if kind != NEVER_FUSES and threshold_bytes > 0:
            open_buckets[kind] = buckets[-1], size
    return buckets
