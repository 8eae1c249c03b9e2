"""The SQL of the store. A list holds one statement per lane; what is put into them is a lane, a number of our own."""

from __future__ import annotations

from typing import Final

from steprail_daemon.journal.layout import LANES

INSERT: Final = [f"INSERT INTO batches_{lane} VALUES (?, ?, ?, ?, ?, ?, ?)" for lane in range(LANES)]  # noqa: S608
READ: Final = [
    f"SELECT key, run_no, last_seq, at, events FROM batches_{lane}"  # noqa: S608
    " WHERE key BETWEEN coalesce("
    f"(SELECT key FROM batches_{lane} WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), ?) AND ?"
    " AND last_seq > ? ORDER BY key"
    for lane in range(LANES)
]
RECORDS: Final = [
    "SELECT key, run_no, records FROM kept WHERE key > ?1 AND key <= ?2 UNION ALL"  # noqa: S608
    f" SELECT key, run_no, records FROM batches_{lane} WHERE key > ?1 AND key <= ?2 AND records IS NOT NULL"
    " ORDER BY key LIMIT ?3"
    for lane in range(LANES)
]
UNPUBLISHED: Final = [
    f"SELECT run_no, at, records FROM batches_{lane} WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608
    for lane in range(LANES)
]
FIRST: Final = [f"SELECT min(key) FROM batches_{lane} WHERE key BETWEEN ? AND ?" for lane in range(LANES)]  # noqa: S608
LAST: Final = [
    f"SELECT key, last_seq FROM batches_{lane}"  # noqa: S608
    " WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
    for lane in range(LANES)
]

SESSION: Final = (
    "SELECT session_no, session_id, last_seq,"
    " coalesce((SELECT max(run_no) FROM runs WHERE runs.session_no = sessions.session_no), 0) FROM sessions"
)
RUN: Final = "SELECT run_id, session_no, run_no, first_seq, last_seq FROM runs"

OPEN_SESSION: Final = "INSERT INTO sessions (session_no, session_id) VALUES (?, ?)"
OPEN_RUN: Final = "INSERT INTO runs (session_no, run_no, run_id, first_seq) VALUES (?, ?, ?, ?)"
ADD_BLOB: Final = "INSERT INTO blobs (blob_id, mime_type, data) VALUES (?, ?, ?) ON CONFLICT (blob_id) DO NOTHING"
#: `WHERE` ends the SELECT, or SQLite would take ON for the constraint of a join.
NAME_BLOB: Final = (
    "INSERT INTO blob_sessions (session_no, last_seq, blob_no) SELECT ?, ?, blob_no FROM blobs WHERE blob_id = ?"
    " ON CONFLICT DO UPDATE SET last_seq = excluded.last_seq"
)
#: The links of a session that was deleted may still be there.
BLOB_SESSIONS: Final = (
    "SELECT session_no FROM blob_sessions JOIN sessions USING (session_no)"
    " WHERE blob_no = (SELECT blob_no FROM blobs WHERE blob_id = ?)"
)
BLOB: Final = (
    "SELECT blob_no, mime_type FROM blobs WHERE blob_id = ? AND EXISTS"
    " (SELECT 1 FROM blob_sessions JOIN sessions USING (session_no) WHERE blob_sessions.blob_no = blobs.blob_no)"
)
END_RUN: Final = "UPDATE runs SET last_seq = ? WHERE session_no = ? AND run_no = ?"
ADD_REQUEST: Final = (
    "INSERT OR REPLACE INTO requests (tenant, caller, request_id, method, digest, result, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
REQUESTS: Final = (
    "SELECT request_no, tenant, caller, request_id, method, digest, result, at FROM requests"
    " WHERE request_no > ? AND at >= ? ORDER BY request_no LIMIT ?"
)
DELETED: Final = "SELECT 1 FROM deleted_sessions WHERE session_no = ?"
DELETE_SESSION: Final = (
    "DELETE FROM sessions WHERE session_no = ?",
    "DELETE FROM runs WHERE session_no = ?",
    "INSERT INTO deleted_sessions VALUES (?, 0)",
)
LAST_SESSION_NO: Final = (
    "SELECT max(coalesce((SELECT max(session_no) FROM sessions), 0),"
    " coalesce((SELECT max(session_no) FROM deleted_sessions), 0))"
)
CLOSE_SESSION: Final = "UPDATE sessions SET last_seq = ? WHERE session_no = ?"
