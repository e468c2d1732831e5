"""Plans as text: files with the suffix ``.scn``.

A plan is made of lines; indented ones belong to the line above them that is not. A line that begins with ``#`` is prose about
what follows: the plan, a client or a step. :func:`print_plan` prints the canonical text, and parsing and printing are inverse:
``parse_plan(print_plan(plan)) == plan``, and ``print_plan(parse_plan(text)) == text`` for text that is canonical.

::

    # The fence to one bookie is lost, and the writer's add to it comes late.
    plan late-add
    expect safe
    end a -1

    cluster 2 2/2/2

    client writer
      create a
      append a 1

    when REC_DECIDE verdict=negative: end held

Grammar, where WORDS are the fields of a value as :mod:`scenarios.plan.words` writes them::

    plan      = prose, "plan" NAME, {head}, cluster, client, {client}, {step}
    head      = "schedule" WORDS, {indented: STRAND NUMBER:PASSES,...}
              | "summary" TEXT | "expect" VERDICT ["by" NAMES] ["until-healed"] | "end" LEDGER ENTRIES
              | "meets" NAMES | "patience" DURATION
    cluster   = "cluster" WORDS, {indented: ("network" | "metadata" | "journal" | ... ) WORDS}
    client    = prose, "client" NAME, {indented: ["within" DURATION] ["must" | "fails"] OPERATION WORDS}
    step      = prose, TRIGGER ["as" NAME] ":" FAULT WORDS
    trigger   = "at" WORDS | "when" KIND WORDS {FIELD=VALUE}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from scenarios.history import FIELDS, FieldType
from scenarios.plan.cluster import CLIENT_GROUPS, Cluster
from scenarios.plan.errors import PlanError, PlanSyntaxError
from scenarios.plan.faults import FAULTS
from scenarios.plan.model import PATIENCE_S, End, Expectation, Expected, Plan, Program, Step
from scenarios.plan.operations import OPERATIONS, Call, ClientOperation, Until, Wanted
from scenarios.plan.schedule import SCHEDULES, ChosenSchedule, parse_strand, strand_lines
from scenarios.plan.triggers import At, Condition, Trigger, When
from scenarios.plan.words import flag_word, parse_fields, parse_value, print_fields, print_value

__all__ = ["parse_plan", "print_plan"]

T = TypeVar("T")

_INDENT: Final = "  "
_SECTIONS: Final = ("network", "metadata", "storage", "files", "tcp")
_RUN_LIMITS: Final = "run-limits"
_PARTS: Final = (*_SECTIONS, "limits", "client")


# Printing ----------------------------------------------------------------------------------------------------------


def print_plan(plan: Plan, *, full: bool = False) -> str:
    """The canonical text of a plan. ``full`` names values too that are the usual ones, so that the text holds every number."""
    blocks = [
        [*_prose(plan.prose), *_head(plan, full=full)],
        _cluster_lines(plan.cluster, full=full),
        *([*_prose(client.prose), f"client {client.name}", *_calls(client, full=full)] for client in plan.clients),
    ]
    blocks += _step_blocks(plan.steps, full=full)
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _prose(lines: tuple[str, ...]) -> list[str]:
    return [f"# {line}".rstrip() for line in lines]


def _head(plan: Plan, *, full: bool) -> Iterator[str]:
    yield f"plan {plan.name}"
    if plan.summary:
        yield f"summary {plan.summary}"
    expect = plan.expect
    by = f" by {','.join(expect.clients)}" if expect.clients else ""
    yield f"expect {print_value(expect.verdict)}{by}{' until-healed' if expect.until_healed else ''}"
    for end in plan.ends:
        yield f"end {end.ledger} {print_value(end.entries)}"
    if plan.meets:
        yield f"meets {','.join(plan.meets)}"
    if full or plan.patience_s != PATIENCE_S:
        yield f"patience {print_value(plan.patience_s, is_duration=True)}"
    if plan.schedule is not None:
        yield " ".join(["schedule", plan.schedule.verb, *print_fields(plan.schedule, full=full, leave_out=("late",))])
    if isinstance(plan.schedule, ChosenSchedule):
        yield from (_INDENT + line for line in strand_lines(plan.schedule.late))


def _cluster_lines(cluster: Cluster, *, full: bool) -> list[str]:
    lines = [" ".join(["cluster", *print_fields(cluster, full=full, leave_out=_PARTS)])]
    usual = Cluster(cluster.bookies, cluster.sizes)
    parts: list[tuple[str, Any, Any, tuple[str, ...]]] = [
        (name, getattr(cluster, name), getattr(usual, name), ("journal",)) for name in _SECTIONS
    ]
    parts.append(("journal", cluster.storage.journal, usual.storage.journal, ()))
    parts.append((_RUN_LIMITS, cluster.limits, usual.limits, ()))
    parts += [(name, getattr(cluster.client, name), getattr(usual.client, name), ()) for name in CLIENT_GROUPS]
    for name, value, base, leave_out in parts:
        words = print_fields(value, full=full, leave_out=leave_out, base=base)
        if words:
            lines.append(_INDENT + " ".join([name, *words]))
    return lines


def _calls(client: Program, *, full: bool) -> Iterator[str]:
    for call in client.calls:
        limit = [] if call.limit_s is None else ["within", print_value(call.limit_s, is_duration=True)]
        wanted = [] if call.wanted is Wanted.ANYTHING else [flag_word(call.wanted)]
        yield _INDENT + " ".join([*limit, *wanted, call.operation.verb, *_operation_words(call.operation, full=full)])


def _operation_words(operation: ClientOperation, *, full: bool) -> list[str]:
    if isinstance(operation, Until):
        return _trigger_words(operation.trigger, full=full)
    return print_fields(operation, full=full)


def _trigger_words(trigger: Trigger, *, full: bool) -> list[str]:
    if isinstance(trigger, At):
        return ["at", *print_fields(trigger, full=full)]
    conditions = [f"{condition.field}={print_value(condition.value)}" for condition in trigger.where]
    return ["when", *print_fields(trigger, full=full, leave_out=("where",)), *conditions]


def _step_blocks(steps: tuple[Step, ...], *, full: bool) -> Iterator[list[str]]:
    """Steps stand together, but for an empty line before one with prose."""
    block: list[str] = []
    for step in steps:
        if step.prose and block:
            yield block
            block = []
        name = ["as", step.name] if step.name else []
        head = " ".join([*_trigger_words(step.trigger, full=full), *name])
        block += [*_prose(step.prose), f"{head}: {' '.join([step.fault.verb, *print_fields(step.fault, full=full)])}"]
    if block:
        yield block


# Parsing -----------------------------------------------------------------------------------------------------------


def parse_plan(text: str, file: str = "<plan>") -> Plan:
    """The plan that a text tells; :class:`PlanSyntaxError` says where it does not, what was expected, and what was found."""
    parser = _Parser(file)
    for number, line in enumerate(text.splitlines(), 1):
        parser.line = number
        try:
            parser.take(line)
        except PlanError as error:
            raise PlanSyntaxError(file, number, str(error)) from error
    try:
        return parser.finish()
    except PlanError as error:
        raise PlanSyntaxError(file, parser.line_of(error.about), str(error)) from error


@dataclass(slots=True)
class _PlanParts:
    """What the lines have told so far."""

    name: str = ""
    prose: tuple[str, ...] = ()
    head: dict[str, Any] | None = None
    ends: tuple[End, ...] = ()
    cluster: Cluster | None = None
    clients: tuple[Program, ...] = ()
    steps: tuple[Step, ...] = ()


class _Parser:
    """Takes one line after the other."""

    def __init__(self, file: str) -> None:
        self.line = 0
        #: Where the parts of the plan stand, by identity.
        self._lines: dict[int, int] = {}
        self._file = file
        #: What was replaced, so that its identity is not given to another part.
        self._kept: list[object] = []
        self._parts = _PlanParts(head={})
        self._prose: list[str] = []
        #: What indented lines belong to.
        self._section = ""
        self._said: set[str] = set()

    def take(self, line: str) -> None:
        """The next line."""
        text = line.strip()
        if text.startswith("#"):
            self._prose.append(text[1:].strip())
        elif text:
            words = text.split()
            if line[0].isspace():
                self._indented(words)
            else:
                self._top(words, text)

    def line_of(self, part: object) -> int:
        """The line of a part of the plan; the last line for the plan as a whole."""
        return self._lines.get(id(part), self.line)

    def finish(self) -> Plan:
        """The whole plan, after the last line."""
        parts = self._parts
        if self._prose:
            raise PlanError("expected a client or a step after prose, found the end of the file")
        if not parts.name:
            raise PlanError("expected plan NAME, found the end of the file")
        if parts.cluster is None:
            raise PlanError("expected cluster BOOKIES E/Qw/Qa, found the end of the file")
        if not parts.clients:
            raise PlanError("expected client NAME, found the end of the file")
        return Plan(
            name=parts.name,
            cluster=parts.cluster,
            clients=parts.clients,
            steps=parts.steps,
            ends=parts.ends,
            prose=parts.prose,
            **(parts.head or {}),
        )

    def _noted(self, part: T) -> T:
        self._lines[id(part)] = self.line
        return part

    def _take_prose(self) -> tuple[str, ...]:
        prose, self._prose = tuple(self._prose), []
        return prose

    def _top(self, words: list[str], text: str) -> None:
        parts, (word, *rest) = self._parts, words
        self._section = ""
        if word in {"at", "when"}:
            self._need(parts.clients, "client NAME", text)
            self._step(text)
        elif word == "client":
            self._need(parts.cluster, "cluster BOOKIES E/Qw/Qa", text)
            self._need(not parts.steps, "at ... or when ...", text)
            name = _one(rest, "a name")
            parts.clients += (self._noted(Program(parse_value(str, name), (), self._take_prose())),)
            self._section = "client"
        elif self._prose and word != "plan":
            raise PlanError(f"expected a plan, a client or a step after prose, found {text!r}")
        elif word == "plan" and not parts.name:
            parts.name = parse_value(str, _one(rest, "a name"))
            parts.prose = self._take_prose()
        elif not parts.name:
            raise PlanError(f"expected plan NAME, found {text!r}")
        elif word == "cluster" and parts.cluster is None:
            parts.cluster = parse_fields(Cluster, rest, leave_out=_PARTS)
            self._section = "cluster"
            self._said.clear()
        elif parts.cluster is None and word in _HEADS:
            self._head(word, rest)
        else:
            wanted = "client, at or when" if parts.cluster else f"{', '.join(_HEADS)} or cluster"
            raise PlanError(f"expected {wanted}, found {text!r}")

    @staticmethod
    def _need(condition: object, wanted: str, text: str) -> None:
        if not condition:
            raise PlanError(f"expected {wanted}, found {text!r}")

    def _head(self, word: str, rest: list[str]) -> None:
        head = self._parts.head
        assert head is not None, "it is made with the parser"
        if word == "end":
            self._parts.ends += (self._noted(parse_fields(End, rest)),)
            return
        if word in self._said:
            raise PlanError(f"expected {word} once, found it twice")
        self._said.add(word)
        if word == "summary":
            head["summary"] = " ".join(rest)
        elif word == "expect":
            head["expect"] = self._noted(_expectation(rest))
        elif word == "meets":
            head["meets"] = self._noted(parse_value(tuple[str, ...], _one(rest, "situations")))
        elif word == "schedule":
            verb = rest[0] if rest else "the end of the line"
            if verb not in SCHEDULES:
                raise PlanError(f"expected {_likely(verb, tuple(SCHEDULES))}, found {verb!r}")
            head["schedule"] = self._noted(parse_fields(SCHEDULES[verb], rest[1:], leave_out=("late",)))
            self._section = "schedule" if verb == ChosenSchedule.verb else ""
        else:
            head["patience_s"] = parse_value(float, _one(rest, "a duration"), is_duration=True)

    def _indented(self, words: list[str]) -> None:
        if self._prose:
            raise PlanError(f"expected a client or a step after prose, found {' '.join(words)!r}")
        if self._section == "cluster":
            self._cluster_part(words)
        elif self._section == "client":
            self._operation(words)
        elif self._section == "schedule":
            self._turns(words)
        else:
            raise PlanError(f"expected a line that is not indented, found {' '.join(words)!r}")

    def _turns(self, words: list[str]) -> None:
        head = self._parts.head
        assert head is not None, "the section has begun"
        chosen = head["schedule"]
        self._kept.append(chosen)
        head["schedule"] = self._noted(ChosenSchedule(chosen.late + parse_strand(words)))

    def _cluster_part(self, words: list[str]) -> None:
        cluster, (name, *rest) = self._parts.cluster, words
        assert cluster is not None, "the section has begun"
        if name in self._said:
            raise PlanError(f"expected {name} once, found it twice")
        self._said.add(name)
        if name == "journal":
            journal = _changed(cluster.storage.journal, rest)
            changed: Any = {"storage": replace(cluster.storage, journal=journal)}
        elif name == _RUN_LIMITS:
            changed = {"limits": _changed(cluster.limits, rest)}
        elif name in CLIENT_GROUPS:
            group = _changed(getattr(cluster.client, name), rest)
            changed = {"client": cluster.client.with_changes(**{name: group})}
        elif name in _SECTIONS:
            changed = {name: _changed(getattr(cluster, name), rest, leave_out=("journal",))}
        else:
            known = (*_SECTIONS, "journal", _RUN_LIMITS, *CLIENT_GROUPS)
            raise PlanError(f"expected {_likely(name, known)}, found {name!r}")
        self._parts.cluster = replace(cluster, **changed)

    def _operation(self, words: list[str]) -> None:
        limit_s = None
        if words[0] == "within":
            if len(words) < 3:
                raise PlanError(f"expected within DURATION OPERATION, found {' '.join(words)!r}")
            limit_s = parse_value(float, words[1], is_duration=True)
            words = words[2:]
        wanted = {"must": Wanted.MUST, "fails": Wanted.FAILS}.get(words[0], Wanted.ANYTHING)
        if wanted is not Wanted.ANYTHING:
            words = words[1:]
            if not words:
                raise PlanError("expected an operation, found the end of the line")
        verb, *rest = words
        if verb == Until.verb:
            operation: ClientOperation = self._noted(Until(_trigger(rest)))
        elif verb in OPERATIONS:
            operation = self._noted(parse_fields(OPERATIONS[verb], rest))
        else:
            raise PlanError(f"expected {_likely(verb, tuple(OPERATIONS))}, found {verb!r}")
        *before, client = self._parts.clients
        longer = replace(client, calls=(*client.calls, Call(operation, limit_s, wanted)))
        self._lines[id(longer)] = self._lines[id(client)]
        self._kept.append(client)
        self._parts.clients = (*before, longer)

    def _step(self, text: str) -> None:
        head, colon, tail = text.partition(":")
        if not colon:
            raise PlanError(f"expected ':' and what to do, found {text!r}")
        name = ""
        before, after = head.split(), tail.split()
        if len(before) >= 2 and before[-2] == "as":
            name = parse_value(str, before[-1])
            before = before[:-2]
        trigger = _trigger(before)
        if not after:
            raise PlanError("expected what to do, found the end of the line")
        verb, *rest = after
        if verb not in FAULTS:
            raise PlanError(f"expected {_likely(verb, tuple(FAULTS))}, found {verb!r}")
        step = Step(trigger, parse_fields(FAULTS[verb], rest), name, self._take_prose())
        self._parts.steps += (self._noted(step),)


_HEADS: Final = ("summary", "expect", "end", "meets", "patience", "schedule")


def _one(words: list[str], what: str) -> str:
    if len(words) != 1:
        raise PlanError(f"expected {what}, found {' '.join(words) or 'the end of the line'!r}")
    return words[0]


def _changed(base: Any, words: list[str], leave_out: tuple[str, ...] = ()) -> Any:
    return parse_fields(type(base), words, base=base, leave_out=leave_out)


def _likely(word: str, known: tuple[str, ...]) -> str:
    """The words that were probably meant, or all."""
    return " or ".join(get_close_matches(word, known, n=2) or known)


def _expectation(words: list[str]) -> Expectation:
    if not words:
        raise PlanError("expected safe, blocked or ambiguous, found the end of the line")
    verdict, rest = parse_value(Expected, words[0]), words[1:]
    clients: tuple[str, ...] = ()
    if len(rest) >= 2 and rest[0] == "by":
        clients, rest = parse_value(tuple[str, ...], rest[1]), rest[2:]
    if rest not in ([], ["until-healed"]):
        raise PlanError(f"expected by CLIENTS or until-healed, found {' '.join(rest)!r}")
    return Expectation(verdict, clients, until_healed=bool(rest))


def _trigger(words: list[str]) -> Trigger:
    if words[:1] == ["at"]:
        return parse_fields(At, words[1:])
    if words[:1] != ["when"]:
        raise PlanError(f"expected at TIME or when KIND, found {' '.join(words) or 'nothing'!r}")
    plain, conditions = [], []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if equals and (key in FIELDS or key == "ledger"):
            conditions.append(Condition(key, _condition_value(key, value)))
        else:
            plain.append(word)
    return parse_fields(When, plain, leave_out=("where",), where=tuple(conditions))


def _condition_value(key: str, value: str) -> int | str | bool:
    kind = FIELDS.get(key, FieldType.STRING)
    if kind is FieldType.FRAGMENTS:
        raise PlanError(f"expected a field with one value, found {key!r}")
    if kind is FieldType.STRING:
        return value
    found: int | bool = parse_value(bool if kind is FieldType.BOOLEAN else int, value)
    return found
