"""JSON web tokens at the door: read strictly, checked with the keys of this server, judged by its expectations.

The configured algorithms are the only ones; a token's header can choose among them and, through that, only among keys
that are for that algorithm. Keys that come with a token (`jwk`, `jku`, `x5c`, …) are never looked at.
"""

from collections.abc import Collection

from jwt import PyJWS, PyJWTError

from headwater.clock import SECOND, Timestamp
from headwater.doors.access.keys import Algorithm, Keyring
from headwater.doors.access.verifiers import Verified
from headwater.errors import Unauthenticated
from headwater.model.json_web_token import Expected, Header, judge_claims, parse_token, principal_of


class JsonWebTokenVerifier:
    """Judges JSON web tokens."""

    def __init__(self, keyring: Keyring, algorithms: Collection[Algorithm], expected: Expected) -> None:
        self._keyring = keyring
        self._algorithms = {algorithm.value: algorithm for algorithm in algorithms}
        self._expected = expected
        self._signatures = PyJWS()
        self.version = keyring.version

    def fits(self, credential: str) -> bool:
        """Three parts with dots between."""
        return credential.count(".") == 2

    async def verify(self, credential: str, now: Timestamp) -> Verified:
        """Whose token it is."""
        token = parse_token(credential)
        self._check_signature(credential, token.header)
        reason = judge_claims(token.claims, self._expected, now / SECOND)
        if reason:
            raise Unauthenticated(reason)
        until = round((token.claims.exp + self._expected.leeway_seconds) * SECOND)
        return Verified(principal_of(token, self._expected), Timestamp(until))

    def _check_signature(self, credential: str, header: Header) -> None:
        algorithm = self._algorithms.get(header.alg)
        if algorithm is None:
            raise Unauthenticated("the token is signed in a way that is not taken here")
        name = header.kid if isinstance(header.kid, str) else None
        for key in self._keyring.find(algorithm, name):
            if self._is_signed(credential, algorithm, key.key):
                return
        raise Unauthenticated("the token is not signed with a key of this server")

    def _is_signed(self, credential: str, algorithm: Algorithm, key: object) -> bool:
        try:
            self._signatures.decode(credential, key, algorithms=[algorithm.value])  # type: ignore[arg-type]
        except PyJWTError:
            return False
        return True
