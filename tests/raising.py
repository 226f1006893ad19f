"""The module of a user whose searcher raises at its fifth suggestion, until there is a file ``mended``."""

from __future__ import annotations

SEARCHER = """
from pathlib import Path
from ray.tune.search import Searcher

class Mine(Searcher):
    count = 0
    def set_search_properties(self, metric, mode, config, **spec):
        return True
    def suggest(self, trial_id):
        self.count += 1
        if self.count == 5 and not Path("mended").exists():
            raise KeyError("the fifth")
        return {"x": self.count / 10}
    def on_trial_complete(self, trial_id, result=None, error=False):
        pass
    def save(self, path): ...
    def restore(self, path): ...
"""
