"""Tracks of a profile: threads of processes, and streams of the devices that each uses."""

from collections.abc import Mapping

from hvdtune.timeline.reading.json.assemble import Tracks

_ON_DEVICE = " GPU "


def stream_of(pid: str, device: int, stream: int) -> tuple[str, str]:
    """The pid and tid of the track of a stream."""
    return f"{pid}{_ON_DEVICE}{device}", str(stream)


def name_tracks(tracks: Tracks, programs: Mapping[str, str], device_word: str) -> None:
    """Give all tracks the titles of their processes, and streams their own.

    Args:
        programs: what processes run, by pid, as far as it is known.
        device_word: what the profile calls a device.
    """
    for pid, tid in zip(tracks.pid, tracks.tid, strict=True):
        process, _, device = pid.partition(_ON_DEVICE)
        name = programs.get(process, "").rpartition("/")[2]
        title = f"{name} ({process})" if name else f"process {process}"
        tracks.processes[pid] = f"{device_word} {device} of {title}" if device else title
        if device:
            tracks.threads.setdefault(pid, {})[tid] = f"stream {tid}"
