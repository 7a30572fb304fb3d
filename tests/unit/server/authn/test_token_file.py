"""Tests of a file of tokens: who is let in by it, and what is refused."""

import pytest

from corral.server.authn.token_file import TokenFileError, read_tokens

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


@pytest.fixture
def file(tmp_path):
    """Writes a file of tokens that its owner alone may read."""

    def write(content, mode=0o600):
        path = tmp_path / "tokens.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    return write


def test_a_line_is_a_user_with_groups(file):
    users = read_tokens(file(f'{TOKEN},lab1,u-1,"students, night"\n\n{OTHER},lab2,\n'))
    assert users[TOKEN].name == "lab1"
    assert users[TOKEN].uid == "u-1"
    assert users[TOKEN].groups == ("students", "night", "system:authenticated")
    assert users[OTHER].groups == ("system:authenticated",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no tokens"),
        (f"{TOKEN},lab1\n", "line 1 has 2 columns instead of 3 or 4"),
        (f"{TOKEN},lab1,1,a,b\n", "line 1 has 5 columns instead of 3 or 4"),
        (f"{TOKEN},a,1\n{OTHER},b,2\n{TOKEN},c,3\n", "line 3: the same token as in line 1"),
        (",lab1,1\n", "line 1: a token has at least 16"),
        ("secret,lab1,1\n", "line 1: a token has at least 16"),
        (f"{TOKEN} {TOKEN},lab1,1\n", "line 1: the token contains a blank"),
        (f"{TOKEN},,1\n", "line 1 names no user"),
        (f'{TOKEN},lab1,1,"a\n', "cannot be read: unexpected end of data"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"x" * ((1 << 20) + 1), "is larger than"),
    ],
)
def test_invalid_lines_are_errors_with_the_line_number(file, content, message):
    with pytest.raises(TokenFileError, match=message) as error:
        read_tokens(file(content))
    assert "tokens.csv" in str(error.value)
    assert TOKEN not in str(error.value), "secrets stay out of messages"


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (0o640, "can be read by others \\(mode 640\\)"),
        (0o604, "can be read by others"),
        (0o620, "can be written by others"),
    ],
)
def test_a_file_accessible_to_others_is_rejected(file, mode, message):
    with pytest.raises(TokenFileError, match=message):
        read_tokens(file(f"{TOKEN},lab1,1\n", mode))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(TokenFileError, match="cannot be read: No such file"):
        read_tokens(tmp_path / "none.csv")
