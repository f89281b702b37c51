"""Documents: scoped JSON with a version and entries in a sparse index."""

from __future__ import annotations

from dataclasses import replace

from duly.engine.kinds import DOCUMENT, DOCUMENT_IDS, IN_SCOPE, SCHEDULE_IDS, StoredDocument
from duly.engine.transaction import Tx
from duly.model.documents import ABSENT, Document, DocumentWrite, Refused, Written
from duly.rules.checks import delete_refusal, id_taken, refuse_schedules, write_refusal


def put_document(tx: Tx, write: DocumentWrite) -> Written | Refused:
    """Store one document and its index entries, by compare-and-set on its version."""
    refuse_schedules(write.collection)
    key = (write.collection, write.scope, write.name)
    found = tx.get(DOCUMENT, *key)
    earlier = None if found is None else found.document
    version = ABSENT if earlier is None else earlier.version
    refusal = write_refusal(write.expected_version, version)
    if refusal is None and earlier is None:
        refusal = _refuse_full(tx, write)
    if refusal is not None:
        return refusal
    now_ms = tx.now_ms
    if earlier is None:
        if tx.is_taken(DOCUMENT_IDS, write.id) or tx.is_taken(SCHEDULE_IDS, write.id):
            raise id_taken(write.id, f"document {'/'.join(key)}")
        document = Document(*key, write.id, write.body, 1, now_ms, now_ms)
    else:
        document = replace(earlier, body=write.body, version=version + 1, updated_at_ms=now_ms)
    tx.put(DOCUMENT, StoredDocument(document, write.entries))
    return Written(document, created=earlier is None)


def _refuse_full(tx: Tx, write: DocumentWrite) -> Refused | None:
    """Return a refusal if a scope has no room for a new document; otherwise None."""
    if write.scope_limit is None:
        return None
    tx.guard(f"{write.collection} of {write.scope}")
    held = tx.count(IN_SCOPE, write.collection, write.scope)
    return Refused("full", held) if held >= write.scope_limit else None


def delete_document(
    tx: Tx, collection: str, scope: str, name: str, expected_version: int | None = None
) -> Document | Refused:
    """Remove one document and its index entries; return what was removed."""
    refuse_schedules(collection)
    found = tx.get(DOCUMENT, collection, scope, name)
    version = ABSENT if found is None else found.document.version
    refusal = delete_refusal(expected_version, version)
    if refusal is not None or found is None:
        return refusal or Refused("absent", ABSENT)
    tx.delete(DOCUMENT, collection, scope, name)
    return found.document
