"""The guest's awk programs, run by the host's awk (they are POSIX)."""

import subprocess
from importlib.resources import files

import pytest

PROGRAMS = files("corral.node.images.demo") / "guest/usr/lib/demo"


def awk(program, text):
    done = subprocess.run(
        ["awk", "-f", str(PROGRAMS / program)],
        input=text.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("hostname: 'it''s'  # comment\n", ["hostname\tit's"]),
        ("users:\n- default\n- name: a\n  k: [x, 'y,z']\n",
         ["users.0\tdefault", "users.1.name\ta", "users.1.k.0\tx", "users.1.k.1\ty,z"]),
        ("c: |\n  a\\b\n    t\n\nd: >-\n  x\n  y\n", ["c\ta\\\\b\\n  t\\n", "d\tx y"]),
        ('{"a": {"b": [1, {"c": "q\\"\\n"}]}, "d": ""}', ["a.b.0\t1", 'a.b.1.c\tq"\\n', "d\t"]),
        ("- - ls\n  - -l\n", ["0.0\tls", "0.1\t-l"]),
        ("m: {a: 1,\n  b: 2\n  }\nn: 3\n", ["m.a\t1", "m.b\t2", "n\t3"]),
    ],
)  # fmt: skip
def test_yaml_is_flattened(text, lines):
    assert awk("yaml.awk", text).splitlines() == lines


@pytest.mark.parametrize(
    "text", ["[", "{", "a: [1, {b", '"', "a: |", "- - -", "[}]{,:", ": :\n - x\n\ty", "a: ]"]
)
def test_the_parser_ends_on_invalid_yaml(text):
    awk("yaml.awk", text)


def test_runcmd_becomes_a_script_with_quoted_words(tmp_path):
    flat = awk(
        "yaml.awk",
        "runcmd:\n- echo one\n- [printf, '%s\\n', \"it's $HOME\", 'a\\\\b']\n- |\n  echo two\n",
    )
    script = awk("runcmd.awk", flat)
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "one\nit's $HOME\na\\\\b\ntwo\n"
