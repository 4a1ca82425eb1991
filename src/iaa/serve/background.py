"""Slow analysis of a gallery in a background thread: its classifier, and how its classes vary."""

import logging
import threading

from iaa.analysis.atlas import ClassRow, atlas
from iaa.gallery.classifier import GalleryClassifier, open_classifier
from iaa.gallery.gallery import Gallery

MAX_IMAGES = 200_000
"""Larger galleries are searched, but not analysed."""
_log = logging.getLogger("iaa.serve")


class _Stopped(Exception):
    pass


class BackgroundAnalysis:
    """Empty at first; ``classifier`` and ``classes`` appear when they are ready.

    ``own`` is the gallery of the run's own images, from which the threshold for unknown classes is learned;
    None if it is not available.
    """

    def __init__(self, gallery: Gallery, own: Gallery | None = None) -> None:
        self.classifier: GalleryClassifier | None = None
        self.classes: dict[str, ClassRow] = {}
        self.mean_variance = 0.0
        """Mean of the total variance over all classes with two images or more."""
        self._gallery, self._own, self._stopped = gallery, own, False
        self._thread = threading.Thread(target=self._analyse, name="iaa-analysis", daemon=True)
        if len(gallery) <= MAX_IMAGES:
            self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the analysis; whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """Stop the analysis; whether the thread has ended. It cannot be interrupted inside of torch."""
        self._stopped = True
        return self.wait(timeout)

    def _check_stopped(self, done: float) -> None:
        if self._stopped:
            raise _Stopped

    def _analyse(self) -> None:
        try:
            self.classifier = open_classifier(self._gallery, own=self._own)
            self._check_stopped(0)
            data = self._gallery.data
            result = atlas(
                data.z.float(), data.labels, ids=data.ids, names=data.class_names, tick=self._check_stopped
            )
            variances = [row.total_variance for row in result.classes if row.count > 1]
            self.mean_variance = sum(variances) / len(variances) if variances else 0.0
            self.classes = {row.name: row for row in result.classes}
        except _Stopped:
            pass
        except ValueError as error:  # such as a gallery of one class; searching does not need the analysis
            _log.warning("the classes of the gallery cannot be analysed: %s", error)
