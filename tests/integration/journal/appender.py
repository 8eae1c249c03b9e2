"""A process that appends to a journal until it is killed, and says on stdout what was committed.

appender.py PATH      append for ever; print a line `SESSION LAST_SEQ` after each commit
appender.py PATH 1    append until files may not grow any more; then lift that limit and append the same batch again
"""

import os
import resource
import sys
from pathlib import Path

from steprail_daemon.core.model import RunState
from steprail_daemon.core.records import RunEnded
from steprail_daemon.journal.record import encode_records
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import Batch, JournalError
from steprail_daemon.testing.store_kit import make_batch, make_blob

ENDED = encode_records([RunEnded(RunState.COMPLETED, None, None, 0, None, None)])
SESSIONS = (1, 2, 65)


class Session:
    """Gives batches of every kind, one after the other, going on where the store ends."""

    def __init__(self, store: SqliteStore, session_no: int) -> None:
        row = store.session(f"ses_{session_no}")
        self.session_no = session_no
        self.last_seq = row.last_seq if row else 0
        self.last_run_no = row.last_run_no if row else 0
        self.known = row is not None
        self.run_open = any(run.last_seq is None for run in store.runs(session_no))

    def next_batch(self) -> Batch:
        first_seq = self.last_seq + 1
        events = tuple(b"%d" % seq * (seq % 50) for seq in range(first_seq, first_seq + 1 + first_seq % 4))
        if not self.known:
            batch = make_batch(self.session_no, first_seq, events, opens_session=f"ses_{self.session_no}")
        elif not self.run_open:
            run_no = self.last_run_no + 1
            run_id = f"run_{self.session_no}_{run_no}"
            batch = make_batch(self.session_no, first_seq, events, run_no=run_no, opens_run=run_id)
        elif first_seq % 23 == 0:
            batch = make_batch(
                self.session_no, first_seq, events, run_no=self.last_run_no, records=ENDED, ends_run=True
            )
        else:
            blobs = (make_blob(b"%d" % first_seq * 20_000),) if first_seq % 31 == 0 else ()
            batch = make_batch(self.session_no, first_seq, events, run_no=self.last_run_no, blobs=blobs)
        return batch

    def committed(self, batch: Batch) -> None:
        self.known = True
        self.last_seq = batch.last_seq
        self.last_run_no = max(self.last_run_no, batch.run_no)
        self.run_open = bool(batch.run_no) and not batch.ends_run


def main(path: Path, limited: bool) -> None:
    store = SqliteStore(path)
    sessions = [Session(store, number) for number in SESSIONS]
    if limited:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    turn = 0
    while True:
        session = sessions[turn % len(sessions)]
        turn += 1
        batch = session.next_batch()
        try:
            store.append(batch)
        except JournalError as error:
            os.write(1, f"failed {error.message}\n".encode())
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            store.append(batch)
            limited = False
        session.committed(batch)
        # Straight to the pipe: a buffer of this process would die with it.
        os.write(1, b"%d %d\n" % (batch.session_no, batch.last_seq))
        if turn % 40 == 0 and not limited:
            store.checkpoint()


if __name__ == "__main__":
    main(Path(sys.argv[1]), len(sys.argv) > 2)
