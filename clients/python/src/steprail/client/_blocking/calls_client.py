"""Generated from `steprail.client._client` by scripts/blocking.py; never edited by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from steprail.client import _messages as messages
from steprail.client._blocking.live import SyncRun
from steprail.client._blocking.portal import Blocking
from steprail.client._channel import CALL_SECONDS
from steprail.client._client import Client
from steprail.client._decide import Answer, Decide, Permit
from steprail.client._live import OnExit
from steprail.v1 import admin_pb2, agents_pb2, budgets_pb2, decisions_pb2, rules_pb2, sessions_pb2


class SyncClientCalls(Blocking[Client]):
    """A connection to one daemon. Use it with `with`. All times are in seconds.

    `address` is `unix:` with a path, or a host with a port. By a `token`, the first one of a `token_file` (read again
    when it changes), or else the file that $STEPRAIL_TOKEN_FILE names, the client proves who it is. `tls` says how TCP
    is encrypted, by default as $STEPRAIL_TLS_ROOTS, $STEPRAIL_TLS_CERTIFICATE and $STEPRAIL_TLS_KEY say.

    `timeout` bounds each call, and is no bound of a run. `wait_for_ready` is how long `with` waits for a daemon
    that is still starting; with 0 it does not connect. `patience` is how long streams try to come back to a daemon that
    went away; `on_lost` is called each time that they try. With `retry`, calls that were refused for a while are made
    again, see `Retry`.

    Every method raises `steprail.errors.StepRailError`, `with` too where credentials cannot be used or no daemon
    came up. Methods give the messages of `steprail.v1` as they are.
    """

    def wait_until_ready(self, timeout: float = CALL_SECONDS) -> agents_pb2.ServerInfo:
        """Wait until a daemon answers, for one that is still starting.

        Raises:
            CallTimeout: none did in `timeout` seconds.
        """
        return self._portal.wait(self._calls.wait_until_ready(timeout))

    def get_server_info(self, *, timeout: float | None = None) -> agents_pb2.ServerInfo:
        """Give version, limits and agents."""
        return self._portal.wait(self._calls.get_server_info(timeout=timeout))

    def list_agents(self) -> list[agents_pb2.Agent]:
        """Give the configured agents."""
        return self._portal.wait(self._calls.list_agents())

    def drain(self, window: float | None = None, *, reason: str = "", request_id: str = "") -> admin_pb2.DrainStatus:
        """Begin to drain the daemon, which ends with its exit and cannot be taken back. For admins.

        `window` is the time for runs to reach a boundary; None is the configuration's.
        """
        return self._portal.wait(self._calls.drain(window, reason=reason, request_id=request_id))

    def get_drain_status(self) -> admin_pb2.DrainStatus:
        """Tell how far a drain is. For admins."""
        return self._portal.wait(self._calls.get_drain_status())

    def list_budgets(self, run_id: str = "") -> list[budgets_pb2.Budget]:
        """Give the budgets by name, or those that count a run, with its figures."""
        return self._portal.wait(self._calls.list_budgets(run_id))

    def get_budget(self, name: str, subject_id: str = "") -> budgets_pb2.Budget:
        """Give a budget; with windows RUN and SESSION, `subject_id` is the run or session whose figures are wanted."""
        return self._portal.wait(self._calls.get_budget(name, subject_id))

    def run(
        self,
        prompt: messages.Prompt,
        *,
        agent: str = "",
        cwd: str | Path = "",
        session: str | sessions_pb2.Session = "",
        stop_when: Iterable[rules_pb2.StopRule] = (),
        decide: Decide | None = None,
        permissions: Permit | None = None,
        questions: Answer | None = None,
        decider: decisions_pb2.Decider | None = None,
        max_steps: int | None = None,
        hard_timeout: float | None = None,
        permission_timeout: float | None = None,
        queue_timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
        queue: bool = False,
        allow_inexact_stop: bool = False,
        on_exit: OnExit = "detach",
    ) -> SyncRun:
        """Give a run to wait for, or to use with `with`; see `LiveRun`.

        It is on a `session`, or on a new one of an `agent` in a directory `cwd`, by default this process's. A session
        that it makes stays, so that the run can be continued; if the run is refused, it goes.

        `decide` is called with each completed `Step` where nothing else stops: True goes on, False stops, a text goes
        on with that guidance, and a `Decision` says all of it. `decider` has the settings beside: timeout, and what
        happens then. `permissions` is called with a `Permission`: True or "allow", "session", False or "deny", or an
        `Allow`, `Deny` or `Instead`. `questions` is called with a `Question`: a text, a mapping of item ids to texts or
        chosen options, or None to decline. Each may be a coroutine function, or a plain one, which runs on a thread and
        may block. One whose answer is not wanted any more is cancelled, or its answer dropped. One that raises is
        reported: the run ends FAILED, DECIDER_ERROR; a permission is denied, a question declined.

        `max_steps` to `queue_timeout` are ceilings, in steps and seconds. With `queue` the run may wait for its turn.

        Raises:
            ValueError: neither or both of `agent` and `session` are given.
        """
        return SyncRun(
            self._calls.run(
                prompt,
                agent=agent,
                cwd=cwd,
                session=session,
                stop_when=stop_when,
                decide=decide,
                permissions=permissions,
                questions=questions,
                decider=decider,
                max_steps=max_steps,
                hard_timeout=hard_timeout,
                permission_timeout=permission_timeout,
                queue_timeout=queue_timeout,
                labels=labels,
                queue=queue,
                allow_inexact_stop=allow_inexact_stop,
                on_exit=on_exit,
            ),
            self._portal,
        )

    def follow(
        self,
        run_id: str,
        *,
        decide: Decide | None = None,
        permissions: Permit | None = None,
        questions: Answer | None = None,
        on_exit: OnExit = "detach",
    ) -> SyncRun:
        """Give a run that exists, to wait for, iterate over and decide about as `run` does; it need not be live.

        It has to have been started with a client as its decider for `decide` to be asked.
        """
        return SyncRun(
            self._calls.follow(run_id, decide=decide, permissions=permissions, questions=questions, on_exit=on_exit),
            self._portal,
        )
