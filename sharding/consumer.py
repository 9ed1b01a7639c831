"""`ShardedConsumer`: the callback of a sharded queue, and the deliveries that wait for it (FC-79 to FC-85)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pika.adapters.select_connection import IOLoop

from .hand_over import DueDelivery, HandOver, Skip
from .shard import Delivery, Shard

_log = logging.getLogger("warren.sharding")


class ShardedConsumer:
    """Hands deliveries over to the callback, at most `workers` at a time."""

    def __init__(
        self,
        loop: IOLoop,
        hand_over: HandOver[Delivery],
        callback: Callable[[Delivery], object],
        workers: int,
        requeue_failed: bool,
        gap_timeout: float,
        on_skip: Callable[[Skip], object] | None,
    ) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._callback = callback
        self._on_skip = on_skip
        self._requeue_failed = requeue_failed
        self._gap_timeout = gap_timeout
        self._idle = workers
        self._gap_timer: object | None = None
        #: The missing numbers, by publisher, for which the timer runs.
        self._gaps: dict[str, int] = {}
        self._threads = ThreadPoolExecutor(workers, "sharded-queue-callback")
        self._has_ended = False

    # -- on the thread of the loop ---

    def arrived(self, shard: Shard, delivery: Delivery) -> None:
        self._hand_over.arrived(shard.index, delivery.publisher, delivery.number, delivery)
        self._go_on()

    def drop(self, shard: Shard) -> None:
        self._hand_over.drop(shard.index)

    def _go_on(self) -> None:
        while self._idle and not self._has_ended:
            handed_over = self._hand_over.take()
            if handed_over is None:
                break
            self._idle -= 1
            self._threads.submit(self._call, handed_over)
        self._time_gaps()

    def _time_gaps(self) -> None:
        """Have the timer run as long as one of the numbers is missing for which it was started. The deliveries of other
        publishers go on meanwhile, and must not prolong it.
        """
        if self._gap_timer is not None and not self._hand_over.has_any(self._gaps):
            self._stop_gap_timer()
        if self._idle and self._gap_timer is None and self._hand_over.is_held_up:
            self._gaps = self._hand_over.gaps()
            self._gap_timer = self._loop.call_later(self._gap_timeout, self._gap_is_over)

    def _stop_gap_timer(self) -> None:
        timer, self._gap_timer, self._gaps = self._gap_timer, None, {}
        if timer is not None:
            self._loop.remove_timeout(timer)

    def _gap_is_over(self) -> None:
        self._gap_timer = None
        gaps, self._gaps = self._gaps, {}
        self._hand_over.give_up(gaps)
        self._go_on()

    def _called(self) -> None:
        self._idle += 1
        self._go_on()

    # -- on a thread of callbacks ---

    def _call(self, handed_over: DueDelivery[Delivery]) -> None:
        delivery = handed_over.item
        delivery.is_late = handed_over.is_late
        try:
            if handed_over.skip is not None and self._on_skip is not None:
                self._on_skip(handed_over.skip)
            succeeded = self._callback(delivery)
        except Exception:
            _log.exception("A callback failed with message %s; the message goes back to its queue.", delivery.number)
            delivery.reject(requeue=True)
        else:
            if succeeded is False:
                delivery.reject(requeue=self._requeue_failed)
            else:
                delivery.ack()
        finally:
            self._loop.add_callback_threadsafe(self._called)

    def give_back(self) -> None:
        """Requeue the deliveries that no callback had, after the consumer was cancelled."""
        self._stop_gap_timer()
        while True:
            handed_over = self._hand_over.take()
            if handed_over is not None:
                handed_over.item.reject(requeue=True)
            elif self._hand_over.is_held_up:
                self._hand_over.give_up(self._hand_over.gaps())
            else:
                return

    def stop(self) -> None:
        """Hand over nothing more. To be called before `end`: a thread pool that is shut down takes no callback."""
        self._has_ended = True

    # -- on any other thread ---

    def end(self) -> None:
        self._threads.shutdown(wait=True)
