"""The handlers that export and import definitions (CM-312 to CM-315)."""

from __future__ import annotations

from typing import Any

from ..call import Answer, ApiCall, json_object
from ..errors import HttpError
from .set_by_operators import CHANGED, existing_vhost

Row = dict[str, Any]

#: The sections of definitions of a single virtual host (CM-312).
VHOST_SECTIONS = ("parameters", "policies", "queues", "exchanges", "bindings")

#: Sections that are lists, in RabbitMQ's order.
SECTIONS = (
    *("users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters"),
    *("policies", "queues", "exchanges", "bindings"),
)


async def definitions(call: ApiCall) -> Any:
    vhost = await existing_vhost(call) if "vhost" in call.names else None
    found: Row = {}
    for row in await call.operate("export_definitions"):
        section, item = row["section"], row["item"]
        if section not in SECTIONS:
            found[section] = item
        elif vhost is None:
            found.setdefault(section, []).append(item)
        elif section in VHOST_SECTIONS and item["vhost"] == vhost:
            found.setdefault(section, []).append({name: each for name, each in item.items() if name != "vhost"})
    for section in SECTIONS if vhost is None else VHOST_SECTIONS:
        found.setdefault(section, [])
    name = call.query("download")
    safe = "".join(each for each in name or "" if each.isascii() and (each.isalnum() or each in "._-"))
    return Answer(200, found, {"content-disposition": f'attachment; filename="{safe}"'} if safe else None)


async def import_definitions(call: ApiCall) -> Any:
    vhost = await existing_vhost(call) if "vhost" in call.names else None
    if call.request.headers.get("content-type", "").startswith("multipart/form-data"):
        text = _uploaded(await call.body(), call.request.headers["content-type"])
        document = json_object(text, "failed_to_parse_json")
    else:
        document = await call.fields("failed_to_parse_json")
    rows = document.get("vhosts")
    names = [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    new = [name for name in names if isinstance(name, str) and name not in call.state.vhosts]
    await call.change("import_definitions", document=document, vhost=vhost)
    for name in new if vhost is None else ():
        if (call.user.name, name) not in call.state.permissions:
            await call.change("add_vhost", name=name, granted_to=call.user.name)
    return CHANGED


def _uploaded(body: bytes, content_type: str) -> bytes:
    """The content of the field `file` in a form that a browser has sent."""
    _, _, boundary = content_type.partition("boundary=")
    for part in body.split(b"--" + boundary.strip('" ').encode("latin-1")):
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    raise HttpError(400, "bad_request", "the form has no field 'file'")
