"""Rule sets of nftables, by libnftables: one text is one transaction.

All functions act on the namespace of the calling thread: call them through ``Namespace.run`` or
``call``.  The text is nft(8)'s language; callers insert only values that were checked to be an
address, a number or one of their own names.
"""

import ctypes
import threading
from collections.abc import Iterable
from functools import cache
from typing import Final

from corral.node.network.netlink import NetworkError

LIBRARY: Final = "libnftables.so.1"
TRANSACTION_CHARACTERS: Final = 1 << 16
"""Characters of a transaction.

Without root on the host, one message to the kernel has at most 2 x net.core.wmem_max bytes (400
KiB), and the kernel's form of a rule is longer than its text.
"""
_TERSE: Final = 1 << 11  # NFT_CTX_OUTPUT_TERSE
_ERROR_CHARACTERS: Final = 500
# libnftables does not document that threads may use it at the same time.
_lock = threading.Lock()


def apply(text: str) -> None:
    """Run a text as one transaction: all of it or nothing.  Raises NetworkError."""
    _run(text)


def split_transactions(statements: Iterable[str]) -> list[str]:
    """Return statements as transactions, each small enough for the kernel."""
    texts = [""]
    for statement in statements:
        if texts[-1] and len(texts[-1]) + len(statement) > TRANSACTION_CHARACTERS:
            texts.append("")
        texts[-1] += f"{statement}\n"
    return texts


def query(text: str, *, members: bool = True) -> str:
    """Return the output of a listing command such as ``list table inet corral``.

    Raises NetworkError.

    Without ``members`` the elements of sets and maps are left out.
    """
    return _run(text, 0 if members else _TERSE)


def unavailable_reason() -> str:
    """Return why nftables cannot be used; empty if it can."""
    try:
        _library()
    except NetworkError as error:
        return error.message
    return ""


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NetworkError(
            f"{LIBRARY} is missing", "Install it: apt-get install libnftables1"
        ) from error
    library.nft_ctx_new.restype = ctypes.c_void_p
    for getter in (library.nft_ctx_get_error_buffer, library.nft_ctx_get_output_buffer):
        getter.restype = ctypes.c_char_p
    return library


def _run(text: str, flags: int = 0) -> str:
    library = _library()
    with _lock:
        context = ctypes.c_void_p(library.nft_ctx_new(0))
        if context.value is None:
            raise NetworkError("libnftables: no memory left")
        try:
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_buffer_output(context)
            library.nft_ctx_output_set_flags(context, flags)
            if library.nft_run_cmd_from_buffer(context, text.encode()):
                error = library.nft_ctx_get_error_buffer(context).decode(errors="replace")
                message = f"nftables refuses: {_shortened(error)}"
                raise NetworkError(message, _hint(error))
            output: bytes = library.nft_ctx_get_output_buffer(context)
            return output.decode(errors="replace")
        finally:
            library.nft_ctx_free(context)


def _hint(error: str) -> str:
    """Return the missing package for an error of the library that names none."""
    if "resolve protocol name" in error:
        return "libnftables reads protocol names from /etc/protocols: apt-get install netbase"
    return ""


def _shortened(error: str) -> str:
    return " ".join(error.split())[:_ERROR_CHARACTERS]
