"""The door of a task: what is checked before a node's body runs and after it has returned.

Before: a native question that a registration covers takes only an answer that came through the adapter. After: a node may not
finish with a question that got no answer; it is asked after all, or the run ends. `guards` puts the door around the nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langgraph.errors import GraphInterrupt, NodeInterrupt

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.asking.envelope import REFUSED, Loaded
from symfonic_interrupts.asking.plain_interrupts import NativeAnswers, covering
from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.core.delivery_run import delivery_run_of
from symfonic_interrupts.core.effects import Effects, transact
from symfonic_interrupts.core.executions import Question
from symfonic_interrupts.core.hub import Hub, audit_log
from symfonic_interrupts.core.refusals import record_refusal
from symfonic_interrupts.core.rows import new_row
from symfonic_interrupts.errors import PauseSwallowed, RegistrationError, ResumeRefused, ScopeRequired
from symfonic_interrupts.registration import InterruptRegistration
from symfonic_interrupts.store.rows import EventSubject, PauseRow, RefusalSubject, columns_of

Config = Mapping[str, Any]


class Door:
    """The door of every task of one graph, for as long as its nodes are guarded.

    Args:
        cached_above: takes a thread id and a namespace; returns the name of a task above the graph there whose result goes into
            a cache, or an empty text.
    """

    def __init__(self, hub: Hub, graph: str, cached_above: Callable[[str, str], str], natives: NativeAnswers) -> None:
        self._hub = hub
        self._graph = graph
        self._cached_above = cached_above
        self._natives = natives

    # -- before the body

    def begin(self, config: Config) -> None:
        """Note that a pass of a node begins."""
        info = names.execution_info(config["configurable"])
        if info is not None:
            self._hub.executions.begin((self._graph, str(info.thread_id)), info)

    def concerns(self, config: Config) -> bool:
        """Whether a point covers this task's node, so that `enter` must be called before its body runs."""
        return self._covering(config["configurable"]) is not None

    def enter(self, config: Config) -> Effects[None]:
        """Let a covered native node run with answers that may count only.

        Raises:
            ResumeRefused: the run brings it an answer past the adapter.
            RegistrationError: its answer would go into a cache.
            ThreadBusy: this delivery has lost its thread.
        """
        configurable = config["configurable"]
        registration = self._covering(configurable)
        info = names.execution_info(configurable)
        if registration is None or info is None:
            return
        task_id = names.running_task_id(configurable, info.task_id)
        self._natives.guarded(task_id)
        self.check_not_cached(registration.name, configurable)
        if not self._may_enter(configurable, task_id):
            refused = ResumeRefused(f"{registration.name}: {REFUSED}")
            yield from self._record_refusal(refused, registration.name, config, leaf_task_id=task_id)
            raise refused

    def _covering(self, configurable: Mapping[str, Any]) -> InterruptRegistration | None:
        info = names.execution_info(configurable)
        if info is None or not self._hub.registry.covers_nodes:
            return None
        return covering(self._hub, self._graph, names.node_path(info.checkpoint_ns))

    def _may_enter(self, configurable: Mapping[str, Any], task_id: str) -> bool:
        if names.take_bare_resume(configurable):
            return False
        answers = names.brought(configurable)
        if not answers:
            return True
        stored = 0
        if isinstance(answers, Loaded):
            stored = answers.stored
            bad = next((slot for slot in range(stored) if slot not in answers.admitted), None)
            if bad is not None and len(answers) > stored:
                return False
            if bad is not None:  # from an earlier run, and does not count: the node asks again
                answers.cut(bad)
                return True
        run = delivery_run_of({"configurable": configurable}, self._graph)
        if run is not None:
            run.lease.check()
        return all(
            run is not None and run.has_sent(task_id, slot, answers[slot]) for slot in range(stored, len(answers))
        )

    def check_not_cached(self, name: str, configurable: Mapping[str, Any]) -> None:
        """Raise RegistrationError where the running task's result goes into a cache: another thread would get its answer."""
        info = names.execution_info(configurable)
        cached = names.cached_task(configurable)
        if cached is None and info is not None:
            path = names.node_path(info.checkpoint_ns).split(names.NS_END)
            static = self._hub.cached_nodes.get(self._graph, frozenset())
            cached = next((p for n, p in enumerate(path) if names.NS_END.join(path[: n + 1]) in static), None)
            ns = names.writes_ns(configurable, info.checkpoint_id)
            cached = cached or self._cached_above(str(info.thread_id), ns) or None
        if cached is not None:
            raise RegistrationError(
                f"{name}: {cached!r} has a CachePolicy, so another thread could get this answer from the cache; remove"
                " cache_policy from it"
            )

    def has_passed(self, configurable: Mapping[str, Any]) -> bool:
        """Whether the running task came in by this door as a covered node, so a plain `interrupt()` in it is guarded."""
        info = names.execution_info(configurable)
        return (
            info is not None
            and self._covering(configurable) is not None
            and self._natives.was_guarded(names.running_task_id(configurable, info.task_id))
        )

    # -- after the body has raised

    def bubbled(self, config: Config, error: BaseException) -> Effects[None]:
        """Record a refusal, or note which node asked, where the body raised one of LangGraph's control exceptions.

        Raises:
            RegistrationError: a covered node raised NodeInterrupt, which takes no answer.
        """
        configurable = config["configurable"]
        info = names.execution_info(configurable)
        if info is None:
            return
        if isinstance(error, ResumeRefused) and not error.recorded:
            for execution in self._hub.executions.under((self._graph, str(info.thread_id)), info.checkpoint_ns):
                if execution.refused is error and (asked := execution.refused_question) is not None:
                    yield from self._record_refusal(error, asked.name, config, interrupt_id=asked.interrupt_id)
        if asked_here := names.interrupts_of(error):
            path = names.node_path(info.checkpoint_ns)
            if isinstance(error, NodeInterrupt) and (covered := self._covering(configurable)) is not None:
                raise RegistrationError(
                    f"{covered.name}: node {path!r} raises NodeInterrupt, which takes no answer; call interrupt() instead"
                ) from error
            for interrupt in asked_here:
                self._natives.asked_by(interrupt.id, path)

    def _record_refusal(self, error: ResumeRefused, name: str, config: Config, **of: str) -> Effects[None]:
        """Record a refusal once, about the pause that the resume was meant for; without one, about the point."""
        error.recorded = True
        thread_id = str(names.execution_info(config["configurable"]).thread_id)
        rows, _ = yield from transact(self._hub.operations.reading.load_answers, self._graph, thread_id)
        matching = [row for row in rows if columns_of(row, *of) == of]
        row = matching[-1] if matching else self._subject_without_pause(config, name, thread_id)
        if row is not None:
            yield from record_refusal(self._hub, row, error.code, {"name": name})
        else:
            audit_log.warning("interrupt_refused %s", canonical_json({"name": name, "code": error.code, **of}))

    def _subject_without_pause(self, config: Config, name: str, thread_id: str) -> RefusalSubject | None:
        """The subject of an event about a point without a pause. None where no scope is known: nobody could read the event."""
        try:
            scope = self._hub.scope_of_run(config)
        except ScopeRequired:
            return None
        # refusals are counted by this text, as there is no token's id
        counted = canonical_json({"graph": self._graph, "thread_id": thread_id, "name": name})
        return {
            "jti": counted,
            "graph": self._graph,
            "thread_id": thread_id,
            "interrupt_id": "",
            "name": name,
            "tenant_id": scope.tenant_id,
            "sub_tenant_id": scope.sub_tenant_id,
            "namespace": scope.namespace,
        }

    def row_of(self, question: Question, thread_id: str) -> PauseRow:
        """The subject of an event about a question without a row, or whose row is not known here."""
        return new_row(
            self._hub,
            question,
            graph=self._graph,
            thread_id=thread_id,
            checkpoint_id=question.leaf_checkpoint_id,
            task_id=question.leaf_task_id,
            langgraph_id="",
            slot=0,
        )

    # -- after the body has returned

    def must_leave(self, config: Config) -> bool:
        """Whether `leave` must be called after this task's body has returned."""
        info = names.execution_info(config["configurable"])
        if info is None:
            return False
        return self._hub.executions.has_any((self._graph, str(info.thread_id))) or self.concerns(config)

    def leave(self, config: Config) -> Effects[None]:
        """Stop a node that returns though its question got no answer. With `on_swallowed="warn"` only report a native question
        here: one of a point is reported when the node's writes are stored.

        Raises:
            GraphInterrupt: the question, so that it is asked after all.
            PauseSwallowed: it cannot be asked any more; always so for a native question.
        """
        configurable = config["configurable"]
        info = names.execution_info(configurable)
        thread = (self._graph, str(info.thread_id))
        must_ask = self._hub.config.on_swallowed == "ask"
        swallowed = self._hub.executions.swallowed_under(thread, info)
        if swallowed and must_ask:
            questions = [question for e in swallowed for question in e.unanswered()]
            yield from self.report_swallowed(questions, str(info.thread_id))
            own = names.execution_key(info)
            askable = [e for e in swallowed if e.raised and (names.execution_key(e.info) == own or not e.has_finished)]
            if len(askable) < len(swallowed):
                raise PauseSwallowed(_swallowed(questions[0].name))
            raised = askable[0].raised
            assert raised is not None
            raise GraphInterrupt(names.interrupts_of(raised))
        covered = self._covering(configurable)
        asked = 0 if covered is None or swallowed else names.times_asked(configurable)
        if covered is not None and asked > len(names.brought(configurable) or ()):
            yield from self._report_swallowed_native(covered.name, config)
            if must_ask:
                raise PauseSwallowed(_swallowed(covered.name))

    def report_swallowed(self, questions: Sequence[Question], thread_id: str) -> Effects[None]:
        """Record, log and warn, once each, that a task swallowed these questions."""
        for question in questions:
            if self._hub.first_time(("swallowed", question.interrupt_id)):
                facts = {"name": question.name, "interrupt_id": question.interrupt_id}
                yield from self._report(self.row_of(question, thread_id), facts)

    def _report_swallowed_native(self, name: str, config: Config) -> Effects[None]:
        info = names.execution_info(config["configurable"])
        if self._hub.first_time(("swallowed", names.running_task_id(config["configurable"], info.task_id))):
            facts = {"name": name, "node": names.node_path(info.checkpoint_ns)}
            yield from self._report(self._subject_without_pause(config, name, str(info.thread_id)), facts)

    def _report(self, subject: EventSubject | None, facts: dict[str, str]) -> Effects[None]:
        if subject is not None:
            yield from transact(self._hub.operations.recording.record, subject, ("interrupt_swallowed", facts))
        audit_log.warning("interrupt_swallowed %s", canonical_json(facts))
        with suppress(UserWarning):  # an application may turn warnings into errors; the rest must happen all the same
            warnings.warn(_swallowed(facts["name"]), UserWarning, stacklevel=2)


def _swallowed(name: str) -> str:
    return (
        f"{name}: the pause was swallowed: something between the node and the question catches Exception; let GraphInterrupt"
        " pass"
    )
