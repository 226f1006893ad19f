"""What the data modules raise and warn."""


class DataUnavailable(OSError):
    """A data set can be neither read nor downloaded; the message says why and what to do."""


class WrongChecksum(DataUnavailable):
    """A file that is on disk is not the published one (damaged, cut short or altered)."""


class DataFallbackWarning(UserWarning):
    """Another data set than the one asked for is used; names both and the reason."""
