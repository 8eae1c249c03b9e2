"""The verbs of runs."""

from __future__ import annotations

from collections.abc import Callable

from steprail_daemon.core import queue
from steprail_daemon.core.errors import Exhausted, Invalid, NotFound, WrongState
from steprail_daemon.core.events import (
    AbortRequested,
    DecisionSubmitted,
    PermissionAnswered,
    QuestionAnswered,
    RunEvent,
    SteerSubmitted,
    StopRequested,
)
from steprail_daemon.core.model import (
    Decision,
    DecisionAction,
    DecisionSource,
    PendingDecision,
    Permission,
    PermissionAlternative,
    PermissionAnswer,
    Question,
    QuestionItemAnswer,
    QueueMode,
    ResolutionSource,
    RunLimits,
    RunSpec,
    RunState,
    StopRule,
)
from steprail_daemon.core.records import PermissionResolved, QuestionResolved
from steprail_daemon.core.views import RunView
from steprail_daemon.drivers.base import Driver
from steprail_daemon.engine import admission
from steprail_daemon.engine.facade import (
    NO_GUIDANCE,
    Caller,
    ContinueRun,
    DeciderRequest,
    Guidance,
    LimitsRequest,
    PendingView,
    StartRun,
    StoredStep,
    shown_items,
)
from steprail_daemon.engine.recovery import committed
from steprail_daemon.engine.refusals import journal_reads
from steprail_daemon.engine.registry import Registry
from steprail_daemon.engine.runner import SessionRunner
from steprail_daemon.engine.settings import EngineSettings
from steprail_daemon.engine.steps import read_steps

_CLIENT = ResolutionSource.CLIENT
#: Bytes of a text for the running turn.
_MAX_STEER = 64 * 1024


class RunVerbs(Registry):
    """Starts, steers, shows and ends runs; see `engine.facade.Facade`."""

    # --- start and continue -----------------------------------------------------------------------------------------

    async def start_run(self, caller: Caller, request: StartRun) -> RunView:
        """See `Facade`."""
        runner = self._runner(caller, request.session_id)
        self._ready_for_run(runner, request.queue)
        if admission.has_expressions(request.stop_rules):
            await admission.check_expressions(request.stop_rules, self._world.rules)
            self._ready_for_run(runner, request.queue)
        settings, view = self._world.settings, runner.view
        spec = RunSpec(
            prompt=admission.admit_prompt(request.prompt, self._driver(runner), settings),
            stop_rules=self._admit_rules(runner, request.stop_rules, inexact=request.allow_inexact_stop),
            decider=admission.admit_decider(request.decider, view.capabilities, settings),
            limits=admission.admit_limits(request.limits, view.capabilities, settings),
            labels={**view.labels, **admission.admit_labels(request.labels, caller.labels)},
            request_id=request.request_id,
            permission_mode=view.permission_mode,
            queue=request.queue,
            allow_inexact_stop=request.allow_inexact_stop,
            step_gate=view.capabilities.step_gate,
        )
        return self._start(caller, runner, spec, at_head=False)

    async def continue_run(self, caller: Caller, request: ContinueRun) -> RunView:
        """See `Facade`."""
        before, runner = self.get_run(caller, request.run_id), self._session_of_run[request.run_id]
        self._ready_to_continue(runner, before, request.queue)
        old = before.spec
        rules = old.stop_rules if request.stop_rules is None else request.stop_rules
        if request.stop_rules is not None and admission.has_expressions(rules):
            await admission.check_expressions(rules, self._world.rules)
            self._ready_to_continue(runner, before, request.queue)
        settings, view = self._world.settings, runner.view
        inexact = old.allow_inexact_stop if request.allow_inexact_stop is None else request.allow_inexact_stop
        prompt, synthesized = self._continue_prompt(request, before, self._driver(runner))
        limits = _inherited(old.limits, settings)
        spec = RunSpec(
            prompt=prompt,
            stop_rules=self._admit_rules(runner, rules, inexact=inexact),
            decider=admission.admit_decider(_decider_of(request, old), view.capabilities, settings),
            limits=admission.admit_limits(
                limits if request.limits is None else request.limits, view.capabilities, settings
            ),
            labels={**old.labels, **admission.admit_labels(request.labels, caller.labels)},
            prompt_synthesized=synthesized,
            continued_from=before.run_id,
            request_id=request.request_id,
            permission_mode=view.permission_mode,
            queue=request.queue,
            allow_inexact_stop=inexact,
            step_gate=view.capabilities.step_gate,
        )
        return self._start(caller, runner, spec, at_head=True)

    def _admit_rules(
        self, runner: SessionRunner, rules: tuple[StopRule, ...], *, inexact: bool
    ) -> tuple[StopRule, ...]:
        view = runner.view
        return admission.admit_rules(rules, view, self._world.settings, inexact=inexact)

    def _start(self, caller: Caller, runner: SessionRunner, spec: RunSpec, *, at_head: bool) -> RunView:
        run_id = self._world.ids.new_id("run")
        view = runner.start_run(run_id, spec, self._request(caller, run_id))
        self._session_of_run[run_id] = runner
        release = queue.release(runner.view) if at_head else None
        if release is not None:
            runner.note(release)
        runner.next_turn()
        return view

    def _continue_prompt(self, request: ContinueRun, before: RunView, driver: Driver) -> tuple[str, bool]:
        if request.prompt is not None:
            return admission.admit_prompt(request.prompt, driver, self._world.settings), False
        if before.started_at is None:
            # The agent never saw the first prompt: to go on is to begin.
            return before.spec.prompt, before.spec.prompt_synthesized
        if before.state is RunState.COMPLETED:
            raise Invalid(
                "PROMPT_INVALID", f"run {before.run_id} is COMPLETED: to go on it needs a prompt", field="prompt"
            )
        return self._world.settings.continue_text, True

    def _ready_to_continue(self, runner: SessionRunner, before: RunView, mode: QueueMode) -> None:
        if not before.ended:
            raise WrongState("SESSION_BUSY", f"run {before.run_id} is live", active_run_id=before.run_id)
        run_ids = runner.view.run_ids
        later = run_ids[run_ids.index(before.run_id) + 1 :]
        started = [run_id for run_id in later if runner.places[run_id].view.started_at is not None]
        if started:
            raise WrongState(
                "NOT_LATEST_RUN",
                f"run {started[-1]} of the session started after {before.run_id}; continue that one",
                latest_run_id=started[-1],
            )
        # What waits behind a run that is continued was queued for after it.
        self._ready_for_run(runner, mode, continues=True)

    def _ready_for_run(self, runner: SessionRunner, mode: QueueMode, *, continues: bool = False) -> None:
        self._refuse_while_draining()
        self._require_open(runner)
        view, settings = runner.view, self._world.settings
        waits_behind = runner.run is not None or (bool(runner.queued) and not continues)
        backoff_ns = self._world.rate_limits.remaining_ns(view.agent)
        if mode is QueueMode.REJECT:
            if runner.run is not None:
                raise self._busy(runner)
            if waits_behind:
                raise WrongState(
                    "SESSION_BUSY",
                    f"{len(runner.queued)} runs of this session wait; queue the run, or release the queue",
                    active_run_id="",
                )
        if backoff_ns and (mode is QueueMode.REJECT or not settings.queue_on_limit):
            raise Exhausted(
                "RATE_LIMITED",
                f"the provider of agent {view.agent!r} refuses requests for {backoff_ns / 1e9:.0f} s more",
                retry_after_ns=backoff_ns,
            )
        if (waits_behind or backoff_ns) and len(runner.queued) >= settings.queue_length:
            raise Exhausted(
                "QUEUE_FULL",
                f"{len(runner.queued)} runs of this session wait, limits.queue_length is {settings.queue_length}",
            )
        if not waits_behind and not runner.host.up:
            self._require_process()

    # --- verbs on live runs -----------------------------------------------------------------------------------------

    def stop_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """See `Facade`."""
        return self._tell_if_live(caller, run_id, StopRequested(DecisionSource.OPERATOR, caller.name, reason))

    def abort_run(self, caller: Caller, run_id: str, *, reason: str) -> RunView:
        """See `Facade`."""
        return self._tell_if_live(caller, run_id, AbortRequested(caller.name, reason))

    def _tell_if_live(self, caller: Caller, run_id: str, event: RunEvent) -> RunView:
        view = self.get_run(caller, run_id)
        if not view.ended:
            self._session_of_run[run_id].tell(run_id, event, self._request(caller, run_id))
        return view

    def submit_decision(
        self,
        caller: Caller,
        run_id: str,
        step_id: str,
        action: DecisionAction | None,
        *,
        reason: str,
        error: str,
        guidance: Guidance = NO_GUIDANCE,
    ) -> Decision:
        """See `Facade`."""
        view = self.get_run(caller, run_id)
        if view.ended:
            raise WrongState("DECISION_NOT_PENDING", f"run {run_id} has ended", run_id=run_id, step_id=step_id)
        self._session_of_run[run_id].tell(
            run_id,
            DecisionSubmitted(step_id, action, caller.name, reason, error, guidance.text, guidance.model),
            self._request(caller, step_id),
        )
        return view.decisions[step_id]

    def register_decider(self, caller: Caller, run_id: str) -> Callable[[], None]:
        """See `Facade`."""
        runner = self._runner_of_run(caller, run_id)
        runner.count_decider(run_id, 1)
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                runner.count_decider(run_id, -1)

        return leave

    def answer_permission(
        self,
        caller: Caller,
        run_id: str,
        permission_id: str,
        answer: PermissionAnswer,
        *,
        alternative: PermissionAlternative | None,
        reason: str,
    ) -> PermissionResolved:
        """See `Facade`."""
        view = self._require_live(caller, run_id, "PERMISSION_NOT_PENDING", permission_id=permission_id)
        if alternative is not None:
            self._session_of_run[run_id].require_alternative(permission_id, view, alternative)
        event = PermissionAnswered(permission_id, answer, caller.name, reason, alternative)
        self._session_of_run[run_id].tell(run_id, event, self._request(caller, permission_id))
        return PermissionResolved(permission_id, answer, _CLIENT, reason, caller.name, alternative)

    def answer_question(
        self, caller: Caller, run_id: str, question_id: str, answers: tuple[QuestionItemAnswer, ...] | None
    ) -> QuestionResolved:
        """See `Facade`."""
        view = self._require_live(caller, run_id, "QUESTION_NOT_PENDING", question_id=question_id)
        secret = {
            item.item_id
            for question in view.pending_questions
            if question.question_id == question_id
            for item in question.items
            if item.secret
        }
        shown = None if answers is None else tuple(answer for answer in answers if answer.item_id not in secret)
        resolved = QuestionResolved(question_id, shown, _CLIENT, caller.name)
        event = QuestionAnswered(question_id, answers, caller.name)
        self._session_of_run[run_id].tell(run_id, event, self._request(caller, shown_items(resolved)))
        return resolved

    def steer_run(self, caller: Caller, run_id: str, text: str) -> str:
        """See `Facade`."""
        self._require_live(caller, run_id, "STEER_NOT_POSSIBLE")
        if not text.strip() or len(text.encode()) > _MAX_STEER:
            raise Invalid("FIELD_INVALID", f"text must not be blank, and have at most {_MAX_STEER} bytes", field="text")
        steer_id = self._world.ids.new_id("str")
        event = SteerSubmitted(steer_id, text, caller.name)
        self._session_of_run[run_id].tell(run_id, event, self._request(caller, steer_id))
        return steer_id

    def _require_live(self, caller: Caller, run_id: str, reason: str, **metadata: str) -> RunView:
        view = self.get_run(caller, run_id)
        if view.ended:
            raise WrongState(reason, f"run {run_id} has ended", retry_after_ns=None, run_id=run_id, **metadata)
        return view

    # --- how runs stand ---------------------------------------------------------------------------------------------

    def get_run(self, caller: Caller, run_id: str) -> RunView:
        """See `Facade`."""
        return self._committed_run(self._runner_of_run(caller, run_id), run_id)

    def list_runs(self, caller: Caller, session_id: str) -> list[RunView]:
        """See `Facade`."""
        runners = [self._runner(caller, session_id)] if session_id else self._visible(caller)
        views = [view for runner in runners for view in committed(self._world, runner)[1].values()]
        return sorted(views, key=lambda view: view.run_id, reverse=True)

    def steps(self, caller: Caller, run_id: str, after_number: int, limit: int) -> list[StoredStep]:
        """See `Facade`."""
        runner = self._runner_of_run(caller, run_id)
        runner.publish_held()
        view = self.get_run(caller, run_id)
        place = runner.places[run_id]
        earliest = runner.feed.earliest_seq()
        if view.steps and place.first_seq < earliest:
            raise NotFound(
                "STEP_NOT_FOUND", f"the steps of run {run_id} are not kept any more, see journal.retain", run_id=run_id
            )
        with journal_reads():
            return read_steps(self._world, runner.session_no, place, view, after_number=after_number, limit=limit)

    def pending(self, caller: Caller, session_id: str) -> list[PendingView]:
        """See `Facade`."""
        runners = [self._runner(caller, session_id)] if session_id else self._visible(caller)
        found: list[tuple[int, PendingView]] = []
        for runner in runners:
            if runner.run is None:
                continue
            session, runs = committed(self._world, runner)
            run = runs[runner.run.view.run_id]
            items: list[PendingDecision | Permission | Question] = [*run.pending_permissions, *run.pending_questions]
            if run.pending_decision is not None:
                items.append(run.pending_decision)
            found += [(item.asked_at, PendingView(session, run, item)) for item in items]
        return [view for _, view in sorted(found, key=lambda entry: entry[0])]

    async def wait_run(self, caller: Caller, run_id: str, *, attention: bool, timeout_ns: int) -> RunView:
        """See `Facade`."""
        runner = self._runner_of_run(caller, run_id)
        view = runner.places[run_id].view
        # The loop's clock: the machine's may be set while somebody waits.
        now = self._world.loop.time
        deadline = now() + timeout_ns / 1e9
        while runner.ledger.stalled or not (view.ended or (attention and view.needs_attention)):
            left = deadline - now()
            if left <= 0:
                break
            await runner.feed.wait(int(left * 1e9))
        return self.get_run(caller, run_id)


def _inherited(old: RunLimits, settings: EngineSettings) -> LimitsRequest:
    """Give the limits that are inherited: the ceilings may have been lowered since, which must not refuse them."""
    return LimitsRequest(
        min(old.max_steps, settings.max_steps),
        min(old.hard_timeout_ns, settings.hard_timeout_ns),
        min(old.permission_timeout_ns, settings.permission_timeout_ns),
        min(old.queue_timeout_ns, settings.queue_timeout_ns),
    )


def _decider_of(request: ContinueRun, old: RunSpec) -> DeciderRequest | None:
    if not request.inherit_decider:
        return request.decider
    if old.decider is None:
        return None
    decider = old.decider
    return DeciderRequest(decider.timeout_ns, decider.on_timeout, decider.on_disconnect, decider.disconnect_grace_ns)
