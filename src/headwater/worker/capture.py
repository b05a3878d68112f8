"""What a command prints, kept within bounds: the beginning and the end, and how much was left out between them."""


class Capture:
    """Takes output as it comes. Half of the limit holds the head, half the tail."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 0)
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Some more output."""
        self.total += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._tail += chunk[-self._half :] if self._half else b""
        self._dropped += max(len(chunk) - self._half, 0)
        if len(self._tail) > self._half:
            surplus = len(self._tail) - self._half
            self._dropped += surplus
            del self._tail[:surplus]

    def text(self) -> str:
        """The output as text; bytes that are none are shown as such."""
        if not self.total:
            return ""
        head = self._head.decode("utf-8", "replace")
        tail = self._tail.decode("utf-8", "replace")
        if not self._dropped:
            return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace").replace("\x00", "\ufffd")
        return f"{head}\n… {self._dropped:,} bytes left out …\n{tail}".replace("\x00", "\ufffd")

    def last_line(self) -> str:
        """The last line that says anything: usually the reason."""
        if not self.total:
            return ""
        lines = [line.strip() for line in self.text()[-2_000:].splitlines() if line.strip()]
        return lines[-1][:500] if lines else ""
