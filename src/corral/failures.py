"""What a failure is called where its exception says nothing: a message is never empty."""


def describe(error: BaseException) -> str:
    """An exception in words.

    ``TimeoutError`` and ``EOFError`` come without any, from asyncio above all.
    """
    if text := str(error).strip():
        return text
    return "it took too long" if isinstance(error, TimeoutError) else type(error).__name__
