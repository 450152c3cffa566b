"""The evidence of one node on its way to the leader: bytes into a private file, and whole or not at all."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.run.nodes.evidence_transfer import MOST
from whichrank.run.nodes.protocol import Closing, Opening
from whichrank.run.nodes.roster import Upload


@dataclass(slots=True)
class Receiving:
    """An upload that has begun."""

    upload: Upload
    _file: IO[bytes] | None = field(default=None)

    @staticmethod
    def begin(folder: Path, node: str, opening: Opening) -> Receiving:
        """What can't be written is still received: its sender learns why it is not kept."""
        begun = Receiving(Upload(opening.token, opening.final, folder / f"{node}.tar.gz", note=opening.note))
        try:
            private_folder(folder)
            begun._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed with the upload
                dir=folder, prefix=f".{node[:80]}.", delete=False
            )
        except UsageError as error:
            begun.upload.why = f"the leader can't write it: {error.message}"
        except OSError as error:
            begun.upload.why = f"the leader can't write it: {error.strerror}"
        return begun

    def take(self, piece: bytes) -> None:
        if self.upload.why:
            return
        self.upload.size += len(piece)
        if self.upload.size > MOST:
            self.upload.why = f"it is larger than {MOST >> 20} MiB"
        elif self._file is not None:
            try:
                self._file.write(piece)
            except OSError as error:
                self.upload.why = f"the leader can't write it: {error.strerror}"

    def end(self, closing: Closing) -> Upload:
        """It is complete, or says why it is not."""
        if self._file is not None and self.upload.path is not None:
            try:
                self._file.close()
                if not self.upload.why:
                    Path(self._file.name).replace(self.upload.path)
            except OSError as error:
                self.upload.why = self.upload.why or f"the leader can't write it: {error.strerror}"
        if closing.size != self.upload.size or closing.why:
            self.upload.why = self.upload.why or closing.why or "it is not complete"
        self.upload.done = True
        return self.upload

    def abandon(self) -> None:
        """Half an upload is none."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
                Path(self._file.name).unlink(missing_ok=True)
