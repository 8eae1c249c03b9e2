"""Where replies come from: a script's turn, or the default plan, which looks around, reads what matters and reports."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from steprail_scripted.model import Call, Reply, ToolResult
from steprail_scripted.script import TurnScript

READ_FIRST = (
    re.compile(r"readme(\.\w+)?", re.IGNORECASE),
    re.compile(r"pyproject\.toml|package\.json|go\.mod|Cargo\.toml|pom\.xml|Package\.swift|Gemfile|composer\.json"),
    re.compile(r"Makefile|justfile|Dockerfile|compose\.ya?ml"),
    re.compile(r"(contributing|changelog|notes)(\.\w+)?", re.IGNORECASE),
)
FILES_TO_READ = 3
ORDINARY_WORDS = [
    "about",
    "after",
    "again",
    "also",
    "because",
    "before",
    "could",
    "every",
    "explain",
    "first",
    "other",
    "please",
    "report",
    "should",
    "summarise",
    "summarize",
    "their",
    "there",
    "these",
    "thing",
    "those",
    "under",
    "where",
    "which",
    "while",
    "would",
    "write",
]


#: A prompt that says no more than to go on, which is what a host says that continues without one.
GO_ON = re.compile(r"(continue|go on)\W*", re.IGNORECASE)


class ScriptedReplies:
    """The replies of a script's turn, one after another; when they are used up, the turn ends with "Done."."""

    def __init__(self, turn: TurnScript, placeholders: dict[str, str]) -> None:
        self._replies = _expanded(turn)
        self._placeholders = placeholders

    def next_reply(self, results: Sequence[ToolResult]) -> Reply:
        """Give the next reply; the results change nothing."""
        del results
        reply = next(self._replies, Reply(text="Done."))
        if "${" not in reply.text:
            return reply
        text = reply.text
        for name, value in self._placeholders.items():
            text = text.replace("${" + name + "}", value)
        return reply._replace(text=text)


def _expanded(turn: TurnScript) -> Iterator[Reply]:
    for reply in turn.replies:
        for _ in range(reply.error.times if reply.error is not None else 1):
            yield reply


class DefaultPlan:
    """Three steps and a report; it reads only, so it asks for no permission.

    `known` has the results of the steps that an earlier turn came to before it was stopped: they are not taken again.
    """

    def __init__(self, prompt: str, known: Iterable[Sequence[ToolResult]] = ()) -> None:
        self._steps = self._run(prompt)
        self._known = iter(known)
        self._results: Sequence[ToolResult] = ()

    def next_reply(self, results: Sequence[ToolResult]) -> Reply:
        """Give the next reply in view of the results."""
        reply = self._reply(results)
        while reply.calls and (known := next(self._known, None)) is not None:
            reply = self._reply(known)
        return reply

    def _reply(self, results: Sequence[ToolResult]) -> Reply:
        self._results = results
        return next(self._steps, Reply(text="Done."))

    def _run(self, prompt: str) -> Iterator[Reply]:
        yield Reply("I look at what the workspace holds before anything else.", (Call("list_tree", {"path": "."}),))
        listing = self._results[0].text if self._results and self._results[0].success else ""
        paths = [line for line in listing.splitlines() if line and not line.startswith("... and ")]
        chosen = worth_reading(paths)
        read: list[tuple[str, ToolResult]] = []
        if chosen:
            thought = f"Of the {len(paths)} files, these say most about the whole: {', '.join(chosen)}."
            yield Reply(thought, tuple(Call("read_file", {"path": path}) for path in chosen))
            read = list(zip(chosen, self._results, strict=False))
        word, found = subject_of(prompt), None
        if word is not None and paths:
            thought = f"Next I search every file for {word!r}, which the prompt seems to be about."
            yield Reply(thought, (Call("search", {"query": re.escape(word)}),))
            found = self._results[0] if self._results else None
        yield Reply(_report(paths, read, word, found))


def unfinished(messages: Iterable[Mapping[str, Any]]) -> tuple[str, list[list[ToolResult]]]:
    """Give the prompt that a conversation came to no answer to, and the results of its complete steps.

    Prompts that say no more than to go on belong to the one before. The prompt is empty if there is none.
    """
    prompt = ""
    steps: list[list[ToolResult]] = []
    results: list[ToolResult] = []
    calls: list[Mapping[str, Any]] = []
    for message in messages:
        role, content = message["role"], str(message["content"])
        if role == "user" and not (prompt and GO_ON.fullmatch(content)):
            prompt, steps = content, []
        elif role == "assistant" and not message.get("toolCalls"):
            prompt, steps = "", []
        elif role == "assistant":
            calls, results = list(message["toolCalls"]), []
        elif role == "tool" and calls:
            results.append(ToolResult(str(calls.pop(0)["name"]), success=True, output=content))
            if not calls:
                steps.append(results)
    return prompt, steps


def worth_reading(paths: Sequence[str]) -> list[str]:
    """Pick the files that say most about a project; the first of all if none is known by its name."""
    by_depth = sorted(paths, key=lambda path: (path.count("/"), path))
    known = [path for pattern in READ_FIRST for path in by_depth if pattern.fullmatch(path.rsplit("/", 1)[-1])]
    return (known or by_depth[:1])[:FILES_TO_READ]


def subject_of(prompt: str) -> str | None:
    """Pick the longest word of a prompt that is not an ordinary one; `None` if there is none of five letters."""
    words = [word for word in re.findall(r"[A-Za-z_][\w-]{4,}", prompt) if word.lower() not in ORDINARY_WORDS]
    return max(words, key=len, default=None)


def _report(
    paths: Sequence[str], read: Sequence[tuple[str, ToolResult]], word: str | None, found: ToolResult | None
) -> str:
    lines = [f"The workspace holds {len(paths)} file{'s' if len(paths) != 1 else ''}."]
    if paths:
        lines.append(f"Files: {', '.join(paths[:10])}{', ...' if len(paths) > len(paths[:10]) else ''}.")
    for path, result in read:
        first = next((line.split("\t", 1)[-1].strip() for line in result.text.splitlines() if line.strip()), "empty")
        lines.append(f"{path} ({len(result.text.splitlines())} lines) begins: {first[:120]}")
    if word is not None and found is not None:
        hits = [] if found.text.startswith("No matches") else found.text.splitlines()
        lines.append(f"{word!r} occurs on {len(hits)} line{'s' if len(hits) != 1 else ''}.")
        lines += [f"  {hit}" for hit in hits[:5]]
    return "\n".join(lines)
