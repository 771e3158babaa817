"""Time that tests and studies of the tuner spend instead of waiting."""


class VirtualClock:
    """Seconds that pass only when somebody spends them."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds
