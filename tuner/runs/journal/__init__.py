"""The journal of a run: every event of a search, appended as it happens, from which all else can be rebuilt.

Reading a journal executes nothing: see `tuner.runs.encoding`.
"""

from tuner.runs.journal.format import JOURNAL
from tuner.runs.journal.reader import JournalReader, first_event, has_lines, last_event
from tuner.runs.journal.writer import JournalWriter, rewrite

__all__ = ["JOURNAL", "JournalReader", "JournalWriter", "first_event", "has_lines", "last_event", "rewrite"]
