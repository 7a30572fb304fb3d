"""Rule sets of the kernel's packet filter, by libnftables: a text is one transaction.

Everything acts on the namespace of the calling thread: call it through ``Namespace.run`` or
``call``.  The text is nft(8)'s language; whoever writes it puts only values into it that were
checked to be an address, a number or a name of their own.
"""

import ctypes
import threading
from collections.abc import Iterable
from functools import cache
from typing import Final

from corral.node.network.netlink import NetworkError

LIBRARY: Final = "libnftables.so.1"
STEP: Final = 1 << 16
"""Characters of a step.  Who is not root of the host may send the kernel 2 x net.core.wmem_max
bytes at once (400 KiB), and the kernel's form of a rule takes more than its text."""
_TERSE: Final = 1 << 11  # NFT_CTX_OUTPUT_TERSE
_LONGEST_COMPLAINT: Final = 500
# libnftables gives no word on threads that use it at the same time.
_turn = threading.Lock()


def apply(text: str) -> None:
    """Carry out a text as one transaction: all of it or nothing.  Raises NetworkError."""
    _run(text)


def steps(statements: Iterable[str]) -> list[str]:
    """Statements as several transactions, none of them too much for the kernel."""
    texts = [""]
    for statement in statements:
        if texts[-1] and len(texts[-1]) + len(statement) > STEP:
            texts.append("")
        texts[-1] += f"{statement}\n"
    return texts


def ask(text: str, *, members: bool = True) -> str:
    """What a listing command says, such as ``list table inet corral``.  Raises NetworkError.

    Without ``members`` it does not say what is in sets and maps.
    """
    return _run(text, 0 if members else _TERSE)


def missing() -> str:
    """Why there is no packet filter here; empty where there is."""
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
    for reads in (library.nft_ctx_get_error_buffer, library.nft_ctx_get_output_buffer):
        reads.restype = ctypes.c_char_p
    return library


def _run(text: str, flags: int = 0) -> str:
    library = _library()
    with _turn:
        context = ctypes.c_void_p(library.nft_ctx_new(0))
        if context.value is None:
            raise NetworkError("the packet filter cannot be asked: there is no memory left")
        try:
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_buffer_output(context)
            library.nft_ctx_output_set_flags(context, flags)
            if library.nft_run_cmd_from_buffer(context, text.encode()):
                complaint = library.nft_ctx_get_error_buffer(context).decode(errors="replace")
                said_no = f"the packet filter refuses: {_shortened(complaint)}"
                raise NetworkError(said_no, _hint(complaint))
            said: bytes = library.nft_ctx_get_output_buffer(context)
            return said.decode(errors="replace")
        finally:
            library.nft_ctx_free(context)


def _hint(complaint: str) -> str:
    """What helps where the library does not know what it could look up."""
    if "resolve protocol name" in complaint:
        return "It knows protocols from /etc/protocols: apt-get install netbase"
    return ""


def _shortened(complaint: str) -> str:
    return " ".join(complaint.split())[:_LONGEST_COMPLAINT]
