"""What is kept of an exception, or of what a user says of a failure: text that every store and every door takes."""


def text_of(value: object, length_max: int | None = None) -> str:
    """The text of an exception or of anything else, whatever it is: of a long one its beginning, and characters that
    cannot be written, as those that stand for bytes in the name of a file, replaced. It never raises."""
    try:
        return storable(str(value)[:length_max])
    except BaseException:
        # Code of its own was called and may have done anything; what it says is not worth the end of a consumer.
        return f"{_class_of(value)}, which cannot be shown"[:length_max]


def named_text_of(error: BaseException, length_max: int) -> str:
    """The same, behind the name of its class."""
    return f"{_class_of(error)}: {text_of(error, length_max)}"[:length_max]


def storable(text: str) -> str:
    """A text in which what cannot be written as UTF-8 is replaced."""
    return text.encode("utf-8", "replace").decode()


def _class_of(value: object) -> str:
    try:
        return storable(type(value).__name__)
    except BaseException:
        return "something"
