"""Messages of exceptions, which are never empty."""


def describe(error: BaseException) -> str:
    """Return the message of an exception; ``TimeoutError`` and ``EOFError`` often have none."""
    if text := str(error).strip():
        return text
    return "it took too long" if isinstance(error, TimeoutError) else type(error).__name__
