"""The durable record of events, runs and decisions. This docstring is the specification of the file `journal.db`.

## What it is

One SQLite database in WAL mode with one writer. `application_id` is 0x7370726C ("sprl"), `user_version` is the
version of the schema, now 3. A file with another application id is refused, so is a file of a newer version; an older
one is brought up to date in one transaction before anything else is done with it (version 1 had no blob_sessions,
version 2 no kept, requests, deleted_sessions and no last_seq in blob_sessions). Text is UTF-8, numbers inside blobs
are little-endian, tables are STRICT. `journal.db-wal` and `journal.db-shm` belong to the file: a copy without them is
not a copy. Whoever restores a copy makes a new epoch, see below: commits after the copy are lost.

## Tables

`batches_0` to `batches_63`: one row per batch, the unit of commit. A session is in table `session_no % 64`.

| column   | meaning |
|----------|---------|
| key      | integer primary key: `session_no << 39`, `first_seq << 8` and `sub` added up |
| run_no   | run the batch belongs to, 0 if to none |
| last_seq | sequence number of the last event; `first_seq - 1` in a batch without events |
| at       | time of the commit, Unix nanoseconds |
| checksum | CRC-32 (as in zlib) of records and events, begun with `at`, see below |
| records  | the batch's records as `journal.record` encodes them; NULL if there are none |
| events   | `kinds` (a byte for each event), `ends` (a uint32 for each), `wire` (the events), one after the other |

`first_seq` has 31 bits, `session_no` 24, both begin at 1. `sub` has 8 bits: 255 in a batch with events; batches
without events that have the same `first_seq`, which is that of the next event, are numbered 0, 1, 2 and so on. So a
session has at most 2,147,483,646 events and 255 batches in a row without an event, and a journal 16,777,215 sessions;
the store refuses what goes beyond. `events` is the last column, so that a replay of records does not read the pages
that hold only events; it is one column and not three, because binding a blob costs as much as four numbers. How many
events there are follows from `first_seq` and `last_seq`.

The checksum begins with `at` modulo 4,294,967,291 as its start value. The other numbers are not in it: the order of
the batches and the other tables tell whether they are right. A reader does not check it, `verify` does.

An entry of `wire` is field 1 of a protobuf message: the byte 0x0A, the length of the event as a varint, the event.
The journal knows no more of it. `ends[i]` is where entry i ends in `wire`, `kinds[i]` its kind, a number of the
public API.

| table | columns |
|-------|---------|
| sessions | session_no (primary key), session_id (unique), last_seq: NULL until the session's last batch |
| runs  | session_no and run_no (primary key), run_id (unique), first_seq, last_seq: NULL until the run ended |
| blobs | blob_no (primary key), blob_id (unique): `sha256-` and the digest of data in hexadecimal, mime_type, data |
| blob_sessions | blob_no and session_no (primary key): a batch of the session brought the blob; last_seq |
| kept  | key (primary key), run_no, last_seq, at, checksum, records: what is left of removed batches, see below |
| requests | request_no (primary key), tenant, caller, request_id (unique together), method, digest, result, at |
| deleted_sessions | session_no (primary key), swept: 1 once nothing of the session is left |
| life  | one row: epoch, boot_id, synchronous of the life that last opened the file; clean: 1 if it closed it |

Batches of a session are gapless from the earliest that is there: the first `first_seq` is 1, or larger where a prefix
was removed, which is only ever a whole prefix and never the last batch of a session that is not closed. A run's
batches end with the one that sets `runs.last_seq`; a session's with the one that sets `sessions.last_seq`. A blob may
be named by many events and is stored once; it is of at least one session, and `blob_sessions.last_seq` is the last
event of the last batch that brought it there, 2,147,483,646 if an earlier version of the file did not tell.

Requests are numbered in the order of their commits. One is committed with what it did; one that did nothing (a stop
of a run that has ended) in a row of its own. A row is replaced if the same caller uses the id again, and removed
after 25 hours or when 100,000 newer ones are there.

## What is removed

**A prefix.** By age and by the size of the file, see `journal.retention`, from the first batch on, at most up to a
place where no run is under way. Each batch that has records leaves a row in `kept` with the same key, run_no,
last_seq and at; whole steps among the records are replaced by their summaries, the checksum is that of a batch
without events. So a replay of `kept` and batches together, by key, gives the same sessions and runs as before, and
what was said in steps is gone. Blobs whose last_seq in blob_sessions is in the prefix go, unless another session has
them. A reader whose cursor is before the earliest batch has missed events; a run whose first_seq is before it is not
there as a whole.

**A session.** Deleting it removes its rows of sessions and runs and puts its number into deleted_sessions, in one
transaction; nothing of it is to be shown from then on, and the number is never used again. Its batches, kept records
and blob_sessions, with the blobs that no other session has, are removed in turns later, the last of which sets
`swept`.

Removed rows leave free pages, which are used again; the file does not shrink, and until a page is used again what was
in it can be found on the disk. `VACUUM` of a file that no daemon uses makes it small and clean.

**Damage.** A session whose rows cannot be read, or whose records cannot be decoded, is shown as BROKEN, with the
reason; nothing is written to it any more, and what is left of it stays in the file until the session is deleted. The
other sessions are not affected. Damage that keeps the table of sessions from being read makes the file unusable.

## Why it is so

A plain batch is one INSERT of one row into one b-tree, without a secondary index and without an explicit transaction.
That holds for a batch without events as well, so that facts on which an agent waits are committed at once, and their
events in a batch of their own right after. What a crash leaves between the two are the batches without events after a
session's last event; their records hold all that the events say.
The integer key puts a session's batches side by side, so that reading on from a cursor is one descent and a walk. New
rows go to the end of their session; 64 tables instead of one make that the end of a b-tree too as long as fewer
sessions than that are live and their numbers are close: SQLite splits the last page of a b-tree by adding one, any
other page by redistributing its neighbours, which with 16 live sessions in one table wrote 2.2 times the bytes.

## What a commit promises

When `append` returns, the batch survives the death of every process of this machine. With `synchronous = "full"` it
also survives a power loss or a crash of the machine; with "normal" such a crash may lose the last commits, never one
from the middle and never the file. A batch is there as a whole or not at all, with the rows of the other tables that
go with it.

## Epoch

The epoch is a random text made with the file. It goes with every cursor. It is made anew at opening if commits may
have been lost: the life before did not close the file, ran with "normal", and the machine has started since
(`/proc/sys/kernel/random/boot_id` differs). The row of `life` is written and synced before the first append of a
life.

## Compatibility of records

See `journal.record`. In short: a record's fields may be added with defaults, unknown fields are ignored, an unknown
kind of record is an error, since a replay that leaves out a fact would claim a state that is not so.
"""
