"""Repository of idempotency keys."""

from __future__ import annotations

from .primitives import Repository


class Keys(Repository):
    """Idempotency keys of a ring."""

    __slots__ = ()

    def claim(self, ring: int, key: str, origin: str, digest: bytes, now: int, window: int) -> bool:
        """Claim a key of an origin; return whether it was not used within the window."""
        return bool(
            self.unit.run("claim_key", ring=ring, key=key, origin=origin, digest=digest, now=now, window=window)
        )

    def digest(self, ring: int, key: str, origin: str) -> bytes:
        """Return the digest of the message that used a key."""
        return bytes(self.unit.rows("key_digest", ring=ring, key=key, origin=origin)[0][0])

    def expire(self, ring: int, before: int) -> None:
        """Delete keys whose window has ended."""
        self.unit.run("expire_key", ring=ring, before=before)
