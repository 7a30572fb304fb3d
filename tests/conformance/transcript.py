"""Sessions at a shell, written down as a user would show them, and played on a live server.

    # A remark.
    $ kubectl get vmirs
    NAME   DESIRED   CURRENT   READY   AGE
    web    3         3         3       <age>
    ~ kubectl get vmi -o name
    virtualmachineinstance.kubevirt.io/web<suffix>  {3}
    $ kubectl get vmirs nosuch
    Error from server (NotFound): ...
    [1]

    @ 1.24+
    $ kubectl create token robot

A command follows ``$``; one after ``~`` is repeated until it answers as written, since nothing
signals to a shell that controllers are done.  Lines after ``>`` continue it.  Then comes what
it prints on both outputs, and ``[N]`` where it does not exit with 0.  Spacing and empty lines count
for nothing.  ``<age>`` and the like stand for what PATTERNS says, ``...`` within a line for any
text, a line ``...`` for any lines, and ``{3}`` at a line's end for so many lines of that form.
What comes after ``@ 1.24+`` is for kubectl from that version on, after ``@ 1.23-`` for kubectl up
to it, and after ``@`` for every kubectl again.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

REPEATED_FOR = 120.0
"""Seconds until a command after ``~`` must have answered as written."""

PATTERNS = {
    "age": r"(\d+[smhdy])+",
    "deleted": r"deleted( from \S+ namespace)?",  # newer kubectl say from where
    "ip": r"\d+\.\d+\.\d+\.\d+",
    "node": r"[a-z0-9][-.a-z0-9]*",
    "number": r"\d+",
    "quantity": r"\d+(n|u|m|k|Ki|Mi|Gi)?",  # in the largest unit that leaves it whole
    "suffix": r"[a-z0-9]{5}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "uid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "version": r"v\d+\.\d+\.\d+\S*",
    "word": r"\S+",
}
Version = tuple[int, int]
NEWEST: Version = (99, 0)
MARK = re.compile(rf"<({'|'.join(PATTERNS)})>|(\.\.\.)")
TIMES = re.compile(r" *\{(\d+)\}$")


@dataclass
class Step:
    """One command, and what is expected of it."""

    line: int
    command: str
    repeated: bool = False
    expected: list[str] = field(default_factory=list)
    exit_code: int = 0

    def matches(self, said: str, exit_code: int) -> bool:
        lines = "".join(f"{plain(line)}\n" for line in said.splitlines() if line.strip())
        return exit_code == self.exit_code and bool(pattern(self.expected).fullmatch(lines))


@dataclass
class Mismatch(AssertionError):
    """Everything in a session that went another way than it is written."""

    steps: list[tuple[Step, str, int]]

    def __str__(self) -> str:
        return "\n\n".join(
            f"line {step.line}: {step.command}\n"
            f"--- expected [{step.exit_code}]\n" + "\n".join(step.expected) + "\n"
            f"--- answered [{exit_code}]\n{said.rstrip()}"
            for step, said, exit_code in self.steps
        )


def plain(line: str) -> str:
    return " ".join(line.split())


def pattern(expected: list[str]) -> re.Pattern[str]:
    """What all that a command prints has to match, line by line."""
    return re.compile("".join(_line(line) for line in expected))


def _line(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    times = TIMES.search(line)
    text, at, whole = plain(TIMES.sub("", line)), 0, ""
    for mark in MARK.finditer(text):
        whole += re.escape(text[at : mark.start()])
        whole += f"(?:{PATTERNS[mark[1]]})" if mark[1] else ".*?"
        at = mark.end()
    whole += re.escape(text[at:])
    return rf"(?:{whole}\n){{{times[1] if times else 1}}}"


def version(text: str) -> Version:
    """A version as ``1.24`` is written."""
    major, minor = text.split(".")
    return int(major), int(minor)


def _is_for(bounds: str, kubectl: Version) -> bool:
    """Report whether a version is within bounds as in ``1.30+``, ``1.20-`` or none."""
    if not bounds:
        return True
    bound = version(bounds[:-1])
    return kubectl >= bound if bounds.endswith("+") else kubectl <= bound


def _lines(text: str, kubectl: Version) -> Iterator[tuple[int, str]]:
    """The lines that are for one kubectl, with their numbers."""
    plays = True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("@"):
            plays = _is_for(line[1:].strip(), kubectl)
        elif plays:
            yield number, line


def steps(text: str, kubectl: Version = NEWEST) -> Iterator[Step]:
    """The commands of a written session for one kubectl, in order."""
    step: Step | None = None
    for number, line in _lines(text, kubectl):
        if line.startswith(("$ ", "~ ")):
            if step is not None:
                yield step
            step = Step(number, line[2:], repeated=line.startswith("~"))
        elif line.startswith("#") or not line.strip():
            continue
        elif step is None:
            raise ValueError(f"line {number}: output before any command")
        elif line.startswith(">"):
            step.command += f"\n{line[2:]}"
        elif re.fullmatch(r"\[\d+\]", line):
            step.exit_code = int(line[1:-1])
        else:
            step.expected.append(line)
    if step is not None:
        yield step


def play(text: str, environment: Mapping[str, str], *, repeated_for: float = REPEATED_FOR) -> None:
    """Run a session in a shell; raises Mismatch with all that was answered otherwise.

    The environment's KUBECTL_VERSION says which kubectl it is for.
    """
    kubectl = environment.get("KUBECTL_VERSION")
    wrong = []
    for step in steps(text, version(kubectl) if kubectl else NEWEST):
        deadline = time.monotonic() + repeated_for
        while True:
            said, exit_code = _run(step.command, environment)
            if step.matches(said, exit_code):
                break
            if not step.repeated or time.monotonic() > deadline:
                wrong.append((step, said, exit_code))
                break
            time.sleep(0.1)
    if wrong:
        raise Mismatch(wrong)


def _run(command: str, environment: Mapping[str, str]) -> tuple[str, int]:
    done = subprocess.run(
        ["sh", "-c", command], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done.stdout, done.returncode
