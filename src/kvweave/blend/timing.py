"""When things happened on a device, without making it stop to tell."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Marks moments in the work of one device; they are read when it has got there.

    On a GPU a mark is an event in the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._moments: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> int:
        """Remember this moment; returns its number."""
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
            return len(self._events) - 1
        self._moments.append(time.perf_counter())
        return len(self._moments) - 1

    def wait_for(self, mark: int) -> None:
        """Queue nothing more in the current stream until the device has got to `mark`.

        For work that goes on in another stream than it began in; within one it costs nothing.
        """
        if self._on_gpu:
            torch.cuda.current_stream().wait_event(self._events[mark])

    def is_done(self) -> bool:
        """Whether the device has got to every mark."""
        return all(event.query() for event in self._events)

    def seconds(self, first: int, last: int) -> float:
        """From one mark to another; waits for the device where it has not got there."""
        if self._on_gpu:
            self._events[last].synchronize()
            return self._events[first].elapsed_time(self._events[last]) / 1e3
        return self._moments[last] - self._moments[first]
