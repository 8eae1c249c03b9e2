"""The parent process: owns the worker and, for it, every agent CLI, so that nothing outlives its owner.

`python -m steprail_daemon.parent --instance ID [options] -- WORKER ARGV...` (`options` lists them). One thread, the
standard library alone, nothing else of this project: it must go on when everything else fails, and it costs memory in
every installation (that is why it does without `typing` and `dataclasses`).

What it promises

- The worker is restarted with back-off whatever it dies of. It is not restarted when it exits with 0 (done) or 78 (a
  configuration error, EX_CONFIG), nor after SIGTERM or SIGINT; the parent then exits with the worker's code (128 + n
  for signal n). Signals HUP and TERM are passed on, INT as TERM, each time they come. After INT or TERM the worker has
  `--grace` seconds; then everything is killed and the code is 1.
- A CLI runs in a session of its own and dies with the parent. Its environment carries
  `STEPRAIL_PROCESS=<instance>.<n>`, which its tools inherit. When a CLI ends, or the worker dies, the CLI's whole
  tree is killed: what descends from it, is in a session of such a process, or carries the mark; scan after scan until
  one finds nothing. Orphans that nothing ties to a CLI are killed when no CLI runs. What was there before the parent,
  and what shares its own session, is never touched.
- The parent keeps a duplicate of each CLI's stdin: the worker's death never looks like an EOF to a CLI, which some
  take as leave to go on alone (Claude Code 2.1 does, even with a blocking hook pending).
- Before the first worker starts, processes with the mark of an earlier life of this instance are killed.

The control socket is the law between parent and worker

The worker's command line gets `--control-fd N` appended: its end of a SOCK_SEQPACKET pair. Each packet is one JSON
object, never empty, at most `wire.MAX_PACKET` bytes (less where the kernel allows less; the sender gets
`wire.PacketTooLarge`). Strings that are not UTF-8 travel as lone surrogates, as `os.fsdecode` makes them. Both ends
are non-blocking; the parent stops reading requests while its own queue is long. `id` is the worker's choice, an
integer that none of its living CLIs has.

From the worker:

- `{"type": "spawn", "id", "argv": [str, ...], "env": {str: str}, "cwd": absolute path}`: start a CLI. The program is
  looked up in the PATH of `env`. Answered by `spawned` or `spawn_failed`.
- `{"type": "close_stdin", "id"}`: close the parent's duplicate. The CLI sees EOF once the worker has closed its own.
- `{"type": "signal", "id", "signal": number, "scope": "process" | "group" | "tree"}`: the CLI itself, its process
  group, or all that belongs to it. SIGKILL to a tree repeats until nothing is left. A CLI that is gone is passed over
  in silence, because its exit may cross the request.

From the parent:

- `{"type": "welcome", "instance", "life", "leftovers_killed"}`: the first packet. `life` counts the workers from 1;
  `leftovers_killed` counts what earlier lives had left and this start killed.
- `{"type": "spawned", "id", "pid"}` with three descriptors: stdin to write, stdout and stderr to read, all
  non-blocking.
- `{"type": "spawn_failed", "id", "errno", "message"}`.
- `{"type": "exited", "id", "code", "signal", "leftovers_killed", "survivors"}`: once per CLI, after its tree was swept;
  exactly one of `code` and `signal` is a number, the other null. `leftovers_killed` counts the processes of its tree
  that had to be killed beside it; `survivors` counts those that did not die within the limit (they wait for a device,
  say), 0 being the rule.
- `{"type": "orphans", "reaped", "killed"}`: how many orphans were reaped, and how many killed, since the last such
  packet.
- `{"type": "refused", "message"}`: a packet was not understood; it had no effect.
"""
