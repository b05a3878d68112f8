"""Looking at a store that is kept as images: the image that is there, and the notes of who took it over."""

import msgspec

from headwater.errors import StoreDamaged
from headwater.stores.bucket.address import Ship, kept_otherwise
from headwater.stores.bucket.entries import IMAGES
from headwater.stores.bucket.label import HEADER_BYTES, Kind, Label, check_whole, read_label, unlabelled
from headwater.stores.bucket.looking import Look
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.bucket_traces import is_note

NOTHING = Label(Kind.IMAGE_LEFT, 0, 0, 0, 0)


class Note(msgspec.Struct, frozen=True):
    """How an epoch began: the PUT that was found, and the epoch that one belonged to."""

    epoch: int
    put_id: int
    parent: int
    parent_epoch: int
    parent_began_with: int
    holder: str = ""
    lease_seconds: float = 0.0
    beats: int = 0
    guard: str = ""
    # Whether an image of this epoch has landed, in the epoch that a store begins with.
    landed: bool = False

    @property
    def follows_image(self) -> bool:
        """Whether an image was there when this was written."""
        return self.landed or self.parent != 0


class ImageLook(Look):
    """Looks at a store that is kept as images."""

    def _label(self, data: bytes) -> Label:
        label = read_label(data, self.names.base)
        if label.kind is Kind.CHAIN:
            raise kept_otherwise(self.names.base, Ship.CHAIN)
        return label

    async def found(self) -> tuple[Label, str]:
        """Label and tag of the image that is there now."""
        found = await self.ask(lambda: self.objects.head(self.names.base, HEADER_BYTES))
        return (NOTHING, "") if found is None else (self._label(found.data), found.tag)

    async def whole(self) -> tuple[Label, str, bytearray]:
        """All of it."""
        found = await self.ask(lambda: self.objects.get(self.names.base))
        if found is None:
            return NOTHING, "", bytearray()
        label = self._label(found.data)
        check_whole(found.data, self.names.base)
        return label, found.tag, unlabelled(found.data)

    async def claim(self) -> None:
        """Make this the place of a store of images: by the object that a chain begins with, so one of both is made."""
        key, pauses = self.names.entry(1), self.pauses()
        while True:
            try:
                await self.objects.create(key, IMAGES)
                return
            except (Refused, Unsure) as error:
                why = error
            found = await self.ask(lambda: self.objects.get(key))
            if found is not None and found.data != IMAGES:
                raise kept_otherwise(self.names.base, Ship.CHAIN)
            if found is not None:
                return
            await pauses.rest(why)

    def note_key(self, epoch: int, put_id: int) -> str:
        """Where the note of an epoch lies."""
        return f"{self.names.log}{epoch:012d}-{put_id:012x}"

    async def note(self, epoch: int, put_id: int) -> tuple[Note, str]:
        """The note of an epoch, and its tag."""
        key = self.note_key(epoch, put_id)
        found = await self.find_note(key)
        if found is None:
            raise StoreDamaged(f"{key} is missing: nobody can say what became of the epoch before")
        return found

    async def find_note(self, key: str) -> tuple[Note, str] | None:
        """The note that lies there, and its tag."""
        found = await self.ask(lambda: self.objects.get(key))
        if found is None:
            return None
        try:
            return msgspec.json.decode(found.data, type=Note), found.tag
        except msgspec.MsgspecError as error:
            raise StoreDamaged(
                f"{key} is no note of a store ({error}). Put it back from the bucket's versions"
            ) from error

    async def refuse_lost(self) -> None:
        """Where there is no image: raises if there was one. Notes tell: the second epoch goes on from one, and the
        first says when its own has landed. Nothing is said while somebody makes the store at this moment."""
        keys = await self.ask(lambda: self.objects.names(self.names.log))
        notes = [key for key in keys if is_note(key.removeprefix(self.names.log))]
        for key in notes:
            found = await self.find_note(key)
            if found is None or not found[0].follows_image:
                continue
            if not (await self.found())[0].position:
                raise StoreDamaged(
                    f"{self.names.base} is missing: it was written, and {key} is of it. "
                    "Put it back from the bucket's versions"
                )
            return

    async def last_of(self, mine: Label, newest: Label) -> int:
        """The put_id of the last image of our epoch, if the newest one goes back to it; otherwise 0."""
        at, began_with, last = newest.epoch, newest.other, newest.put_id
        while (at, began_with) != (mine.epoch, mine.other):
            if at <= mine.epoch:
                return 0
            note, _ = await self.note(at, began_with)
            at, began_with, last = note.parent_epoch, note.parent_began_with, note.parent
        return last
