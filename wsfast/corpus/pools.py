"""What measures shards: this process, several of this machine, or those of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from wsfast._extras import import_extra
from wsfast._files import write_whole
from wsfast.corpus.scorer import Scorer
from wsfast.corpus.shards import Shard

ENGINES = ("local", "ray")
"""What may run the processes."""

_AHEAD = 2  # shards of a process: one that it measures, one that waits
_DEATHS = 5  # of processes, one after another and no shard between them, that end a run


class Pool(ABC):
    """One process or several, with a scorer each."""

    @abstractmethod
    def write(self, shards: Iterable[Shard], folder: Path) -> Iterator[Shard]:
        """Measure shards and write their files, each as a whole; those that are done, in any order.

        A shard whose process dies is measured again.

        Raises
        ------
        RuntimeError
            If processes die again and again.
        """

    @abstractmethod
    def close(self) -> None:
        """End processes that were begun, also while they work."""


def pool_of(engine: str, scorer: Scorer, workers: int | None, address: str | None) -> Pool:
    """Processes of an engine; as many as it has cores, where `workers` is None."""
    if engine == "ray":
        return RayPool(scorer, workers, address)
    count = workers or cores()
    return ThisProcess(scorer) if count == 1 else LocalPool(scorer, count)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- of this machine -------------------------------------------------------------------------------


class ThisProcess(Pool):
    """The process that asks, one thread: another would take seconds to begin."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def write(self, shards: Iterable[Shard], folder: Path) -> Iterator[Shard]:
        for shard in shards:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                content = shard.measured(self._scorer)
            finally:
                torch.set_num_threads(threads)
            write_whole(folder / shard.name, content)
            yield shard

    def close(self) -> None:
        pass


_scorer: Scorer | None = None  # of this process, which is one of a pool


class LocalPool(Pool):
    """Processes of this machine, one thread each."""

    def __init__(self, scorer: Scorer, workers: int) -> None:
        self._scorer, self._workers = scorer, workers
        self._executor: ProcessPoolExecutor | None = None
        self._alive: Connection | None = None

    def write(self, shards: Iterable[Shard], folder: Path) -> Iterator[Shard]:
        left = iter(shards)
        begun: dict[int, Shard] = {}
        deaths = 0
        while True:
            try:
                for shard in self._until_death(left, begun, folder):
                    deaths = 0
                    yield shard
                return
            except BrokenProcessPool as error:  # noqa: PERF203
                self.close()
                deaths += 1
                if deaths == _DEATHS:
                    raise RuntimeError(
                        f"processes died {deaths} times one after another, without a shard between "
                        "them: take fewer workers, or smaller shards, where memory is short"
                    ) from error

    def _until_death(
        self, left: Iterator[Shard], begun: dict[int, Shard], folder: Path
    ) -> Iterator[Shard]:
        """What the processes write; `begun` holds what is not done whenever one of them dies."""
        executor = self._started()
        futures: dict[Future[None], Shard] = {}

        def submit(shard: Shard) -> None:
            with _no_interrupt():  # a submission may begin a process
                futures[executor.submit(_write, shard, folder)] = shard

        for shard in begun.values():
            submit(shard)
        while True:
            for shard in islice(left, _AHEAD * self._workers - len(futures)):
                begun[shard.number] = shard
                submit(shard)
            if not futures:
                return
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                _check(future)
                shard = futures.pop(future)
                del begun[shard.number]
                yield shard

    def _started(self) -> ProcessPoolExecutor:
        # Processes end when nobody holds the other end: after `close`, and when this one is killed.
        context = multiprocessing.get_context("spawn")
        held, self._alive = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            self._workers, context, initializer=_begin, initargs=(self._scorer, held)
        )
        return self._executor

    def close(self) -> None:
        if self._alive is not None:
            self._alive.close()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._executor = self._alive = None


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back; a process that is begun meanwhile never sees it.

    It ends with the run: on its own it would print a traceback. Windows has no such mask.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(scorer: Scorer, held: Connection) -> None:
    """Make this process ready for shards."""
    global _scorer
    _scorer = scorer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the run, which ends its processes
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(held,), daemon=True).start()


def _end_with(held: Connection) -> None:
    with suppress(EOFError, OSError):
        held.recv()
    os._exit(1)


def _write(shard: Shard, folder: Path) -> None:
    # Nothing goes back: a process that is killed while it writes to the pipe would leave a part of
    # a message, and the run would wait for the rest.
    assert _scorer is not None
    write_whole(folder / shard.name, shard.measured(_scorer))


def _check(future: Future[None]) -> None:
    """Raise here what a process has refused."""
    try:
        future.result()
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise error.with_traceback(None)  # noqa: B904 # its cause is the other process's


# -- of a cluster ----------------------------------------------------------------------------------


class RayPool(Pool):
    """Actors of Ray, a core each: on a cluster where there is an address, else on this machine."""

    def __init__(self, scorer: Scorer, workers: int | None, address: str | None) -> None:
        self._ray = ray = import_extra("ray", "ray")
        self._began = not ray.is_initialized()
        if self._began:
            ray.init(address=address, log_to_driver=False)
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_DEATHS)(_Actor)
        self._actors = [remote.remote(scorer) for _ in range(count)]

    def write(self, shards: Iterable[Shard], folder: Path) -> Iterator[Shard]:
        left = iter(shards)
        free = self._actors * _AHEAD
        begun: dict[Any, tuple[Shard, Any]] = {}
        while True:
            for shard in islice(left, len(free)):
                actor = free.pop()
                begun[actor.measured.remote(shard)] = shard, actor
            if not begun:
                return
            (done, *_), _ = self._ray.wait(list(begun))
            shard, actor = begun.pop(done)
            free.append(actor)
            # Here: workers of a cluster need not see the folder.
            write_whole(folder / shard.name, self._result(done))
            yield shard

    def _result(self, done: Any) -> bytes:
        try:
            content: bytes = self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause.with_traceback(None)  # noqa: B904
        except self._ray.exceptions.RayActorError as error:
            raise RuntimeError(f"actors of Ray died again and again: {error}") from error
        return content

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._began:
            self._ray.shutdown()


class _Actor:
    def __init__(self, scorer: Scorer) -> None:
        torch.set_num_threads(1)
        self._scorer = scorer

    def measured(self, shard: Shard) -> bytes:
        return shard.measured(self._scorer)
