"""Whom the limits on connections and bodies count: one address, unless it is that of a reverse proxy."""

from __future__ import annotations

import ipaddress


class Peers:
    """`proxies` are addresses and networks, as in the setting."""

    def __init__(self, proxies: str) -> None:
        self._proxies = [ipaddress.ip_network(text.strip()) for text in proxies.split(",") if text.strip()]

    def of(self, client: tuple[str, int] | None) -> str | None:
        """The address to count; None for a proxy, which stands for many and limits them itself."""
        if client is None:  # a Unix socket
            return None
        try:
            address = ipaddress.ip_address(client[0].partition("%")[0])
        except ValueError:
            return client[0]
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self._proxies):
            return None
        if address.version == 6:  # who has one address there has 2**64
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)
