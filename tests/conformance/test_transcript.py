"""The player of sessions itself: it must not let a wrong answer pass."""

import os

import pytest
from tests.conformance.transcript import Mismatch, play, steps

pytestmark = pytest.mark.conformance

VERSIONS = [(1, 9), (1, 23), (1, 24)]


@pytest.mark.parametrize(
    "session",
    [
        "$ echo one   two\none two",
        "$ printf 'a\\nb\\nc\\n'\n...\nc",
        "$ printf 'a\\nb\\nc\\n'\na\n...",
        "$ echo web-x2f4z is 3m20s old\nweb-<suffix> is <age> old",
        "$ printf 'pod a\\npod b\\n'\npod <word> {2}",
        "$ echo oops >&2; exit 3\noops\n[3]",
        "$ cat <<END\n> text\n> END\ntext",
        "$ echo '<none> (x)'\n<none> (x)",
        "$ true",
    ],
)
def test_what_is_written_is_met(session):
    play(session, os.environ)


@pytest.mark.parametrize(
    "session",
    [
        "$ echo one\ntwo",
        "$ echo one",
        "$ true\none",
        "$ echo one\none\n[1]",
        "$ echo one; exit 1\none",
        "$ printf 'pod a\\npod b\\n'\npod <word>",
        "$ printf 'a\\nb\\n'\na",
        "$ echo 1x\n<number>",
        "~ echo one\ntwo",
    ],
)
def test_differences_are_reported(session):
    with pytest.raises(Mismatch, match="line 1"):
        play(session, os.environ, repeated_for=0.1)


def test_a_command_is_repeated_until_it_answers_as_written(tmp_path):
    counter = tmp_path / "count"
    play(f"~ echo x >>{counter}; wc -l <{counter}\n3", os.environ)


def test_every_mismatch_is_reported_with_its_line():
    with pytest.raises(Mismatch) as mismatch:
        play("$ echo a\nb\n\n$ echo c\nc\n$ echo d\ne", os.environ)
    assert [step.line for step, *_ in mismatch.value.steps] == [1, 6]


def test_output_without_a_command_is_refused():
    with pytest.raises(ValueError, match="before any command"):
        list(steps("hello"))


def test_some_commands_are_for_some_versions_only():
    session = "$ w\n@ 1.24+\n$ x\nout of x\n@ 1.23-\n$ y\n@\n$ z"
    played = {version: [step.command for step in steps(session, version)] for version in VERSIONS}
    assert played == {(1, 9): list("wyz"), (1, 23): list("wyz"), (1, 24): list("wxz")}
    with pytest.raises(Mismatch):
        play("@ 1.24+\n$ false", {**os.environ, "KUBECTL_VERSION": "1.30"})
    play("@ 1.24+\n$ false\n@\n$ true", {**os.environ, "KUBECTL_VERSION": "1.20"})
