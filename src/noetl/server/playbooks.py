"""The catalog over HTTP: registering, listing and reading playbooks."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter

from noetl.client.wire import CatalogPage, CatalogRow, CatalogText, PlaybookSource, Registered
from noetl.ids import timestamp
from noetl.playbook.load import Loaded, load
from noetl.server.parts import Given, Parts
from noetl.server.problems import InvalidSourceError, UnknownPlaybookError
from noetl.server.views import catalog_row
from noetl.store.protocol import CatalogEntry

YAML: Final = "application/yaml"

PathQuery = Annotated[str, QueryParameter(min_length=1, max_length=500, description="Of a playbook.")]
VersionQuery = Annotated[int | None, QueryParameter(ge=1, le=2_147_483_647, description="Default: newest.")]
Limit = Annotated[int, QueryParameter(ge=1, le=1_000)]
Digest = Annotated[str, PathParameter(pattern="^[0-9a-f]{64}$", description="SHA-256 of a text.")]


def checked_source(parts: Parts, source: str) -> Loaded:
    """A playbook as it was read; what is wrong with it becomes the problem that is answered."""
    loaded = load(source.encode("utf-8", "surrogatepass"), parts.kinds)
    if loaded.playbook is None:
        errors = [each for each in loaded.diagnostics if each.severity == "error"]
        first = errors[0]
        raise InvalidSourceError(f"line {first.line}: {first.message}", diagnostics=tuple(loaded.diagnostics))
    return loaded


async def registered(parts: Parts, loaded: Loaded) -> CatalogEntry:
    playbook = loaded.playbook
    assert playbook is not None
    now = timestamp(parts.clock.now())
    entry = await parts.store.register(
        playbook.path, playbook.name, playbook.dialect, loaded.text.encode(), now
    )
    parts.control.keep_plan(entry, playbook)
    return entry


@post("/api/catalog", summary="Register a playbook")
async def register(parts: Given, data: JSONBody[PlaybookSource]) -> Registered:
    """A changed text becomes a new version; the same text keeps its version."""
    loaded = checked_source(parts, data.source)
    entry = await registered(parts, loaded)
    row = catalog_row(entry)
    return Registered(
        path=row.path,
        version=row.version,
        name=row.name,
        dialect=row.dialect,
        digest=row.digest,
        registered_at=row.registered_at,
        warnings=tuple(each for each in loaded.diagnostics if each.severity == "warning"),
    )


@get("/api/catalog", summary="The newest version of each playbook")
async def listed(parts: Given, limit: Limit = 100) -> CatalogPage:
    return CatalogPage(entries=tuple(map(catalog_row, await parts.store.catalog(limit=limit))))


@get("/api/catalog/versions", summary="All versions of a playbook")
async def versions(parts: Given, path: PathQuery, limit: Limit = 100) -> CatalogPage:
    found: tuple[CatalogRow, ...] = tuple(map(catalog_row, await parts.store.catalog(path=path, limit=limit)))
    if not found:
        raise UnknownPlaybookError(f"there is no playbook `{path}` in the catalog")
    return CatalogPage(entries=found)


@get("/api/catalog/entry", summary="A version of a playbook, with its text")
async def shown(parts: Given, path: PathQuery, version: VersionQuery = None) -> CatalogText:
    entry = await parts.store.catalog_entry(path, version)
    if entry is None:
        wanted = path if version is None else f"{path}@{version}"
        raise UnknownPlaybookError(f"there is no playbook `{wanted}` in the catalog")
    return CatalogText(
        path=entry.path,
        version=entry.version,
        name=entry.name,
        dialect=entry.dialect,
        digest=entry.digest,
        registered_at=entry.registered_at,
        source=entry.source.decode("utf-8", "replace"),
    )


@get(
    "/api/catalog/sources/{digest:str}",
    summary="The text of a playbook that a command names",
    media_type=YAML,
    responses={200: ResponseSpec(data_container=str, media_type=YAML, description="The text.")},
)
async def source(parts: Given, digest: Digest) -> Response[bytes]:
    text = await parts.control.playbook_source(digest)
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(text, media_type=YAML, headers=headers)


HANDLERS: Final = (register, listed, versions, shown, source)
