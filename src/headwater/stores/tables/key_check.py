"""Whether the key at hand is the one that this store encrypts with: a message under another would open for nobody."""

from headwater.errors import EncryptionKeyMissing
from headwater.model.queue import QueueOptions
from headwater.stores.codec import Codec
from headwater.stores.tables.connection import Connection, Text

META = "encryption_key_check"


class KeyCheck:
    """Remembers, with the first message that is encrypted, something that only its key opens."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._is_known = False

    def fits(self) -> bool | None:
        """Whether the key is the store's; None when the store has none yet."""
        row = self._connection.row(self._sql.get_meta, (META,), Text)
        if row is None:
            return None
        try:
            return self._codec.opens(bytes.fromhex(row[0]))
        except EncryptionKeyMissing:
            return False

    def check(self, options: QueueOptions) -> None:
        """Raises when what is about to be encrypted would be so with another key than what is there."""
        if not options.encrypted or self._is_known:
            return
        row = self._connection.row(self._sql.get_meta, (META,), Text)
        if row is None:
            self._connection.run(self._sql.set_meta, (META, self._codec.seal().hex()))
        elif self._codec.opens(bytes.fromhex(row[0])):
            self._is_known = True
        else:
            raise EncryptionKeyMissing(
                "this store encrypts with another key than the one in HEADWATER_ENCRYPTION_KEY; nothing was kept: "
                "nobody else could open it"
            )
