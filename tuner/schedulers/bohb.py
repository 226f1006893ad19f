"""The brackets of BOHB."""

from __future__ import annotations

from typing import Literal

from tuner.schedulers.hyperband import Brackets


class Bohb(Brackets):
    """HyperBand's brackets, filled by ``search.kind: bohb`` (Falkner, Klein and Hutter 2018, "BOHB").

    Every report reaches the searcher, which models the results at each fidelity, so that the scheduler is HyperBand's
    and no more. Ours and not Ray's ``HyperBandForBOHB``: that one dies with any searcher but Ray's ``TuneBOHB``, and
    leaves trials paused for ever in a finished experiment, which then cannot be restored.

    Example:
        >>> import tuner
        >>> tuner.schedulers.Bohb(time_attr="epoch", max_t=27).rungs()
        (1, 3, 9, 27)
    """

    kind: Literal["bohb"] = "bohb"
    """The name of this scheduler."""

    def incompatibility(self, search: str) -> str | None:
        if search in ("bohb", "auto"):
            return None
        return f"bohb's brackets feed bohb's models, not {search}: use search.kind bohb, or scheduler.kind hyperband"
