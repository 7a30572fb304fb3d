"""Static tokens from a file (kube-apiserver's --token-auth-file); they never expire.

A line is ``token,user,uid`` or ``token,user,uid,"group1,group2"``.  Kubernetes skips invalid lines,
and of equal tokens the last one counts; here both are errors, because otherwise the wrong user
would be accepted or rejected.
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

MAX_BYTES: Final = 1 << 20
MIN_TOKEN_CHARACTERS: Final = 16
"""Shorter tokens can be guessed."""
_PRIVATE: Final = "it has credentials; make it accessible to its owner only: chmod 600"


class TokenFileError(Exception):
    """An invalid token file; the message names the file, the line, and what to do."""


def read_tokens(path: Path) -> Mapping[str, User]:
    """Read the tokens of a file, each with its user.  Raises TokenFileError."""
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
    """Read the file, if nobody but its owner may read or write it."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if reason := files.untrusted_stat(status):
            raise TokenFileError(f"{path} {reason}; {_PRIVATE} {path}")
        if stat.S_IMODE(status.st_mode) & (stat.S_IRGRP | stat.S_IROTH):
            mode = f"{stat.S_IMODE(status.st_mode):o}"
            raise TokenFileError(f"{path} can be read by others (mode {mode}); {_PRIVATE} {path}")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TokenFileError(f"{path} is larger than {MAX_BYTES} bytes")
    return content


def _tokens(path: Path, text: str) -> Mapping[str, User]:
    tokens: dict[str, User] = {}
    lines: dict[str, int] = {}
    for line, fields in _lines(text):
        where = f"{path}, line {line}"
        token, user = _read(where, fields)
        if token in tokens:
            raise TokenFileError(f"{where}: the same token as in line {lines[token]}")
        tokens[token], lines[token] = user, line
    if not tokens:
        raise TokenFileError(f"{path} has no tokens; write lines such as: {_EXAMPLE}")
    return tokens


_EXAMPLE: Final = 'token,user,uid,"group1,group2"'


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(keepends=True), strict=True, skipinitialspace=True)
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _read(where: str, fields: list[str]) -> tuple[str, User]:
    if not 3 <= len(fields) <= 4:
        raise TokenFileError(f"{where} has {len(fields)} columns instead of 3 or 4: {_EXAMPLE}")
    token, name, uid = fields[:3]
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
        raise TokenFileError(
            f"{where}: a token has at least {MIN_TOKEN_CHARACTERS} printable ASCII characters; "
            "generate one with: openssl rand -hex 32"
        )
    if " " in token:
        raise TokenFileError(f"{where}: the token contains a blank")
    if not name:
        raise TokenFileError(f"{where} names no user: {_EXAMPLE}")
    groups = [each.strip() for each in (fields[3] if len(fields) > 3 else "").split(",")]
    return token, User(
        name=name, uid=uid, groups=(*dict.fromkeys((*filter(None, groups), AUTHENTICATED)),)
    )
