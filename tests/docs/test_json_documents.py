"""The reference of ``--json`` has every key of every document."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.documents.test_documents import properties
from tuner.documents import schemas

EXTENSIONS = Path(__file__).parents[2] / "docs/_ext"


def test_the_reference_has_every_document_and_key() -> None:
    sys.path.insert(0, str(EXTENSIONS))
    from json_documents import reference  # type: ignore[import-not-found]

    text = "\n".join(reference())
    for name, schema in schemas().items():
        assert f"``{name}``\n---" in text or name == "error"
        assert [key for key, _ in properties(schema) if f"{key}``" not in text] == []
    assert "``all[].failures[].kind``" in text
    assert "``best.config``" in text
