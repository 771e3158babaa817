from collections.abc import Sequence

def plan_buckets(
    bytes: Sequence[int], kinds: Sequence[int], threshold_bytes: int
) -> list[list[int]]: ...
