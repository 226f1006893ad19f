"""The journal of a run: every event of a search, appended as it happens, from which all else can be rebuilt.

Reading a journal executes nothing: see `tuner.encoding`.
"""

from tuner.journal.format import JOURNAL
from tuner.journal.reader import JournalReader, first_event, has_lines, last_event
from tuner.journal.writer import JournalWriter, rewrite

__all__ = ["JOURNAL", "JournalReader", "JournalWriter", "first_event", "has_lines", "last_event", "rewrite"]
