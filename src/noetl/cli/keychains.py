"""The keychains of a server's executions: resolved when one is started, and again wherever it goes on.

What a caller sent along is kept for the execution before anything of it is written, so that whoever takes it
over can resolve the same. When a task of an execution calls another one, what was sent along with it is also
kept for that one; naming an execution as one's parent is not enough for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from noetl.control.executions import Origin
from noetl.engine.state import Data
from noetl.engine.turn import error_data
from noetl.engine.workload import materialise
from noetl.errors import NoetlError
from noetl.playbook.model import KeychainEntry, Playbook
from noetl.registry.caller_secrets import CallerSecrets
from noetl.secrets.keychain import Resolver, variables_named
from noetl.secrets.redaction import Redactor

logger = logging.getLogger(__name__)


class Keychains:
    def __init__(self, resolver: Resolver, callers: CallerSecrets, *, durable: bool) -> None:
        """`durable`: what callers send is kept where other servers find it."""
        self._resolver = resolver
        self._callers = callers
        self._is_durable = durable

    async def prepare(
        self, playbook: Playbook, payload: Data, origin: Origin
    ) -> tuple[dict[str, Any], Data | None]:
        """The resolved keychain of a playbook that is to be started, or what keeps it from that.

        What was resolved until then is given as well: it must not stand in what is written about it.
        """
        if not playbook.keychain:
            if origin.called_by is not None:
                await self._sent_along(origin)  # those that it calls may have one
            return {}, None
        found: dict[str, Any] = {}
        try:
            workload = materialise(playbook.workload, payload, "")
            given = await self._given(playbook.keychain, workload, origin)
            await self._resolver.resolve(playbook.keychain, workload, given, found)
            Redactor().register_keychain(found)  # raises for a secret that could not be kept out of the log
        except NoetlError as error:
            return found, error_data(error.code, error.message)
        if origin.secrets and given:
            await self._keep(origin, given)
        return found, None

    async def _given(
        self, entries: tuple[KeychainEntry, ...], workload: Mapping[str, Any], origin: Origin
    ) -> dict[str, str]:
        """What callers sent for the variables that this keychain names, and nothing else of it."""
        names = variables_named(entries, workload)
        sent: Mapping[str, str] = origin.secrets
        if not sent and (names or origin.called_by is not None):
            sent = await self._sent_along(origin)
        return {name: value for name, value in sent.items() if name in names}

    async def _sent_along(self, origin: Origin) -> Mapping[str, str]:
        """With this execution, or with the one that calls it: then also for those that it calls in turn."""
        sent = await self._callers.find(origin.execution_id)
        if not sent and origin.called_by is not None:
            sent = await self._callers.find(origin.called_by)
            if sent:
                await self._keep(origin, sent)
        return sent

    async def _keep(self, origin: Origin, given: Mapping[str, str]) -> None:
        if not self._is_durable:
            logger.warning(
                "secrets of a caller are in memory only, for there is no master key: neither another server "
                "nor this one, started again, can go on with execution %s",
                origin.execution_id,
            )
        await self._callers.keep(origin.execution_id, given, origin.called_by)
