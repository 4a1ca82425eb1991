"""What takes a while to learn of a gallery, learnt in the background: how classes vary, what is unknown."""

import logging
import threading

from iaa.analysis.atlas import ClassRow, atlas
from iaa.gallery.classifier import GalleryClassifier, open_classifier
from iaa.gallery.gallery import Gallery

MOST = 200_000
"""Images of a gallery up to which it is learnt; beyond, the server only searches."""
_log = logging.getLogger("iaa.serve")


class _Stopped(Exception):
    pass


class Insights:
    """Empty at first; ``naming`` and ``classes`` appear when they are ready. The server answers meanwhile.

    ``own`` is the gallery of the run's own images, which teach what is unknown; None if it is not here.
    """

    def __init__(self, gallery: Gallery, own: Gallery | None = None) -> None:
        self.naming: GalleryClassifier | None = None
        self.classes: dict[str, ClassRow] = {}
        self.average = 0.0
        """Mean over classes of the total variance, of those with two images or more."""
        self._gallery, self._own, self._stopped = gallery, own, False
        self._thread = threading.Thread(target=self._learn, name="iaa-insights", daemon=True)
        if len(gallery) <= MOST:
            self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Until everything is learnt or there is nothing to learn; whether that is so."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """Learn no further; whether the thread has ended. Inside of torch it cannot be told to."""
        self._stopped = True
        return self.wait(timeout)

    def _tick(self, done: float) -> None:
        if self._stopped:
            raise _Stopped

    def _learn(self) -> None:
        try:
            self.naming = open_classifier(self._gallery, own=self._own)
            self._tick(0)
            data = self._gallery.data
            found = atlas(data.z.float(), data.labels, ids=data.ids, names=data.class_names, tick=self._tick)
            varied = [row.total_variance for row in found.classes if row.count > 1]
            self.average = sum(varied) / len(varied) if varied else 0.0
            self.classes = {row.name: row for row in found.classes}
        except _Stopped:
            pass
        except ValueError as error:  # a gallery of one class, say: searching does not need any of this
            _log.warning("the gallery's classes cannot be described: %s", error)
