"""What the engine needs of the world, as protocols. `daemon.py` hands in what implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from steprail_daemon.core.events import PassiveEvent
from steprail_daemon.core.records import Fact, Record, StepEnded
from steprail_daemon.core.shutdown import Ladder
from steprail_daemon.core.views import SessionView
from steprail_daemon.journal.store import Batch, Blob

#: Notes a value of a metric: what to add to a counter or a level, what a gauge is, one value of a histogram. The last
#: argument has the metric's labels.
Observe = Callable[[str, float, Mapping[str, str]], None]


class Clock(Protocol):
    """Time as a value."""

    def now(self) -> int:
        """Give Unix nanoseconds that never run backwards within one life of the daemon."""


class IdSource(Protocol):
    """Makes public ids."""

    def new_id(self, prefix: str) -> str:
        """Give `prefix`, an underscore and a text that sorts by time and is never given twice."""

    def new_uuid(self) -> str:
        """Give a random UUID, for CLIs that want one."""


class ExitStatus(Protocol):
    """How a process ended: exactly one of both is set."""

    @property
    def code(self) -> int | None:
        """Exit code."""

    @property
    def signal(self) -> int | None:
        """Number of the signal that killed it."""


class ProcessHandlers(Protocol):
    """What an agent's process calls, always on the loop's thread."""

    def on_stdout(self, data: bytes) -> None:
        """Take bytes of stdout."""

    def on_stdout_eof(self) -> None:
        """Take the end of stdout."""

    def on_exit(self, status: ExitStatus) -> None:
        """Take the exit; called exactly once, after stdout was drained or given up."""


class ProgramProcess(Protocol):
    """A running program that is only read."""

    @property
    def stderr_tail(self) -> bytes:
        """The last bytes of stderr."""

    async def shut_down(self, ladder: Ladder, end: Callable[[], None] | None = None) -> None:
        """End the process and its whole tree; returns once none of it is left or the ladder's last rung was tried."""


class ProgramLauncher(Protocol):
    """Starts programs to ask them something. Every `Launcher` is one."""

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> ProgramProcess:
        """Start a program in a session of its own; see `Launcher`."""


class AgentProcess(ProgramProcess, Protocol):
    """A running agent."""

    read_size: int

    @property
    def pid(self) -> int:
        """Process id."""

    def write(self, data: bytes) -> None:
        """Write to stdin without waiting; what does not fit is kept and written later.

        Raises:
            BufferError: too much would wait; nothing of `data` was taken.
        """

    def close_stdin(self) -> None:
        """Give the agent an EOF."""

    def pause_reading(self) -> None:
        """Stop reading stdout for a while."""

    def resume_reading(self) -> None:
        """Read stdout again."""


class Launcher(Protocol):
    """Starts agents."""

    async def spawn(
        self, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str, handlers: ProcessHandlers
    ) -> AgentProcess:
        """Start a program in a session of its own.

        Raises:
            OSError: it could not be started; `errno` and `strerror` say why.
            TimeoutError: there was no answer in time.
        """


class EventEncoder(Protocol):
    """Gives events of one session their public wire form. Stateful: `begin` sets what the following ones share."""

    #: Kind of each class that is a public event: the number of its field in the public event's body.
    kinds: Mapping[type, int]

    def begin(self, at: int, run_id: str, step_number: int) -> None:
        """Set time, run (empty: none) and step (0: none) of the events that follow."""

    def encode(self, seq: int, event: PassiveEvent | Fact) -> bytes:
        """Give one entry of a batch: the event with its tag and length."""

    def step(self, fact: StepEnded) -> bytes | None:
        """Give the public `Step` that the event of `fact` will hold, ahead of it; None if not all of the step fits.

        It is encoded once: the event takes it over. What `begin` set must hold for both.
        """

    def keep(self, text: str) -> None:
        """Have a text that a resource shows kept as a blob, if it is too large to be shown whole."""

    def take_blobs(self) -> tuple[Blob, ...]:
        """Give and forget the contents that were too large for the events encoded since the last call."""


class Listener(Protocol):
    """Hears of commits, after whoever waits for them. It costs next to nothing and never raises."""

    def committed(
        self, session: SessionView, batch: Batch, facts: Sequence[Fact], events: Sequence[PassiveEvent | Fact]
    ) -> None:
        """Take a batch that was published: its facts, also those that are no events, and its events."""

    def journal_refused(self, message: str) -> None:
        """Take that the journal refused a commit."""

    def deleted(self, session: SessionView) -> None:
        """Take that a session is gone, with all that was recorded of it."""


class Deaf:
    """Hears nothing, and observes nothing."""

    def committed(
        self, session: SessionView, batch: Batch, facts: Sequence[Fact], events: Sequence[PassiveEvent | Fact]
    ) -> None:
        """Take nothing."""

    def journal_refused(self, message: str) -> None:
        """Take nothing."""

    def deleted(self, session: SessionView) -> None:
        """Take nothing."""

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Note nothing."""


#: For an engine that nobody watches.
DEAF = Deaf()


class Encoders(Protocol):
    """Makes encoders."""

    #: As of each encoder.
    kinds: Mapping[type, int]

    def event_of(self, entry: bytes) -> bytes:
        """Give the public event within one entry of a batch."""

    def for_session(self, session_id: str) -> EventEncoder:
        """Make the encoder of one session."""


class RecordCodec(Protocol):
    """Gives records the form in which the store keeps them."""

    def to_record(self, fact: Fact) -> Record:
        """Give what is recorded of a fact whose wire form is committed with it. Others are recorded as they are."""

    def to_fact(self, record: Record) -> Fact | None:
        """Give a record as the fact that it is; None for one that does not tell all of it."""

    def encode_records(self, records: Sequence[Record]) -> bytes:
        """Encode the records of one batch."""

    def decode_records(self, data: bytes) -> list[Record]:
        """Decode the records of one batch.

        Raises:
            journal.store.JournalError: they are damaged or of an unknown version.
        """
