"""What code that loads data raises and warns.

tuner ends a search with exit status 4 if `prepare` raises an `OSError`, and shows its `UserWarning`s as notices.
"""


class DataUnavailable(OSError):
    """A data set can be neither read nor downloaded; the message says why and what to do.

    Example:
        >>> from tuner.training.data_errors import DataUnavailable
        >>> raise DataUnavailable("images.npz: no such file; download it with scripts/get_images")
        Traceback (most recent call last):
            ...
        tuner.training.data_errors.DataUnavailable: images.npz: no such file; download it with scripts/get_images
    """


class WrongChecksum(DataUnavailable):
    """A file that is on disk is not the published one (damaged, cut short or altered)."""


class DataFallbackWarning(UserWarning):
    """Another data set than the one asked for is used; names both and the reason."""
