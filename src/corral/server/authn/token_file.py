"""Users with tokens that never end, from a file: Kubernetes' static tokens.

A line is ``token,user,uid`` or ``token,user,uid,"group1,group2"``.  Kubernetes passes over what it
cannot read, and lets the last of several equal tokens win; here that is refused, since somebody
would be let in, or kept out, whom nobody meant.
"""

import csv
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from corral import files
from corral.api.request import User
from corral.server.authn.authenticator import AUTHENTICATED

MOST_BYTES: Final = 1 << 20
SHORTEST_TOKEN: Final = 16
"""Characters; what is shorter can be guessed."""
_PRIVATE: Final = "it holds what lets people in; make it yours alone: chmod 600"


class TokenFileError(Exception):
    """Why a file of tokens cannot be used: it names the file and the line, and what to do."""


def read_tokens(path: Path) -> Mapping[str, User]:
    """The tokens of a file, each with its user.  Raises TokenFileError."""
    try:
        text = _content(path).decode()
        return _tokens(path, text)
    except OSError as error:
        raise TokenFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TokenFileError(f"{path} is not text in UTF-8: {error}") from error
    except csv.Error as error:
        raise TokenFileError(f"{path} cannot be read: {error}") from error


def _content(path: Path) -> bytes:
    """What the file holds, if nobody else may write it or read it."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if reason := files.untrusted_stat(found):
            raise TokenFileError(f"{path} {reason}; {_PRIVATE} {path}")
        if stat.S_IMODE(found.st_mode) & (stat.S_IRGRP | stat.S_IROTH):
            mode = f"{stat.S_IMODE(found.st_mode):o}"
            raise TokenFileError(f"{path} can be read by others (mode {mode}); {_PRIVATE} {path}")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise TokenFileError(f"{path} is larger than {MOST_BYTES} bytes")
    return content


def _tokens(path: Path, text: str) -> Mapping[str, User]:
    tokens: dict[str, User] = {}
    lines: dict[str, int] = {}
    for line, fields in _lines(text):
        where = f"{path}, line {line}"
        token, user = _read(where, fields)
        if token in tokens:
            raise TokenFileError(f"{where}: the token is that of line {lines[token]} already")
        tokens[token], lines[token] = user, line
    if not tokens:
        raise TokenFileError(f"{path} holds no token; write lines such as: {_EXAMPLE}")
    return tokens


_EXAMPLE: Final = 'token,user,uid,"group1,group2"'


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(keepends=True), strict=True, skipinitialspace=True)
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _read(where: str, fields: list[str]) -> tuple[str, User]:
    if not 3 <= len(fields) <= 4:
        raise TokenFileError(f"{where} has {len(fields)} columns and not 3 or 4: {_EXAMPLE}")
    token, name, uid = fields[:3]
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise TokenFileError(
            f"{where}: a token is at least {SHORTEST_TOKEN} letters, digits and signs of ASCII; "
            "one that nobody guesses is made by: openssl rand -hex 32"
        )
    if " " in token:
        raise TokenFileError(f"{where}: there is a blank in the token")
    if not name:
        raise TokenFileError(f"{where} names no user: {_EXAMPLE}")
    groups = [each.strip() for each in (fields[3] if len(fields) > 3 else "").split(",")]
    return token, User(
        name=name, uid=uid, groups=(*dict.fromkeys((*filter(None, groups), AUTHENTICATED)),)
    )
