"""Bearer tokens: who may read which namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_pages.arguments import as_choice, as_list, as_seconds, as_str
from spark_pages.errors import AccessDeniedError, InvalidInputError, MissingDependencyError
from spark_pages.service.failures import MOST_TOKEN, NO_TOKEN

try:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
except ModuleNotFoundError as missing:
    raise MissingDependencyError(
        f"Cannot check tokens: {str(missing.name).partition('.')[0]} is not installed.",
        hint='Install it: `pip install "spark-pages[service]"`.',
    ) from missing

Algorithm = Literal["HS256", "RS256", "EdDSA"]

ALGORITHMS: tuple[Algorithm, ...] = ("HS256", "RS256", "EdDSA")

_SHORTEST_SECRET = 32
_READ = "read:"
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """What a caller may do.

    Attributes
    ----------
    namespaces
        Those that may be read; ``*`` among them means all.
    """

    namespaces: frozenset[str]

    def allows(self, namespace: str) -> bool:
        """Whether tables of the namespace may be read."""
        return _ALL in self.namespaces or namespace in self.namespaces

    def check(self, namespace: str) -> None:
        """Refuse a namespace that may not be read, whether or not it exists.

        Raises
        ------
        AccessDeniedError
        """
        if not self.allows(namespace):
            raise AccessDeniedError(
                f"Cannot read namespace {namespace!r}: the token does not allow it.",
                hint=_scope_hint(namespace),
                namespace=namespace,
            )

    def check_all(self, what: str) -> None:
        """Refuse what tells of all namespaces, unless all may be read.

        Raises
        ------
        AccessDeniedError
        """
        if _ALL not in self.namespaces:
            raise AccessDeniedError(
                f"Cannot read {what}: the token does not allow all namespaces.",
                hint=_scope_hint(_ALL),
                namespace=_ALL,
            )


EVERYTHING = Access(frozenset({_ALL}))
"""Of callers where no tokens are asked for."""


class TokenVerifier:
    """Checks tokens: JSON Web Tokens of one algorithm, for one audience, with an end.

    Parameters
    ----------
    keys
        Secrets of 32 bytes or more for HS256, else public keys in PEM. A token is good if one of them fits,
        so that keys can be changed without a pause.
    algorithm
        The only one that is accepted, whatever a token says of itself.
    audience
        What ``aud`` must name.
    issuer
        What ``iss`` must be; None accepts any.
    leeway_s
        How far clocks may differ.

    Raises
    ------
    InvalidInputError
        If a key does not fit the algorithm.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        algorithm: Algorithm,
        audience: str,
        issuer: str | None = None,
        leeway_s: float = 5.0,
    ) -> None:
        as_choice(algorithm, "algorithm", ALGORITHMS)
        given = as_list(keys, bytes, "keys", "keys as bytes")
        if not given or not as_str(audience, "audience"):
            raise InvalidInputError(
                "Cannot check tokens without a key and an audience: one of them is missing.",
                hint="Pass `keys` and `audience`, --token-key and --token-audience on the command line.",
            )
        self._keys = [_key(key, algorithm) for key in given]
        self._algorithm = algorithm
        self._audience = audience
        self._issuer = None if issuer is None else as_str(issuer, "issuer")
        self._leeway_s = as_seconds(leeway_s, "leeway_s")

    def __repr__(self) -> str:
        return f"TokenVerifier({self._algorithm}, audience={self._audience!r})"

    def verify(self, header: str | None) -> Access:
        """Return the access rights of an ``authorization`` header.

        Raises
        ------
        AccessDeniedError
            Says why, and never repeats any of the token.
        """
        kind, _, token = (header if isinstance(header, str) else "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _refused("the call has no bearer token", "Pass `token` to `connect`.")
        if len(token) > MOST_TOKEN:
            raise _refused(
                f"it has {len(token):,} characters, expected at most {MOST_TOKEN:,}",
                "Get one with fewer claims, of at most 7,168 characters.",
            )
        reason: Exception | None = None
        for key in self._keys:
            try:
                claims = jwt.decode(
                    token.strip(),
                    key,
                    algorithms=[self._algorithm],
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=self._leeway_s,
                    options={"require": ["exp", "aud"]},
                )
            except jwt.InvalidSignatureError as error:
                reason = error
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                reason = error
                break
            else:
                return Access(_namespaces(claims.get("scope")))
        raise _refused(_why(reason), "Get another `token`.") from None


def _key(key: bytes, algorithm: Algorithm) -> Any:
    if algorithm == "HS256":
        secret = key.strip()
        if len(secret) < _SHORTEST_SECRET or secret.startswith((b"-----BEGIN", b"ssh-")):
            raise InvalidInputError(
                f"Cannot use the key for HS256: it is no secret of {_SHORTEST_SECRET} random bytes or more.",
                hint="Make one, for example with `openssl rand -hex 32`.",
            )
        return secret
    expected = RSAPublicKey if algorithm == "RS256" else Ed25519PublicKey
    try:
        public = load_pem_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, expected):
        raise InvalidInputError(
            f"Cannot use the key for {algorithm}: it is no public key in PEM ({expected.__name__}).",
            hint="Export the public key: `openssl pkey -in private.pem -pubout`.",
        )
    return public


def _scope_hint(namespace: str) -> str:
    """Return which scope to ask for, and never one that allows more than the namespace."""
    if namespace == _ALL or len(namespace.split()) != 1:
        return "No scope stands for this name alone: ask for the tables to be moved to another namespace."
    return f"Ask for a token with the scope {_READ}{namespace}."


def _namespaces(scope: Any) -> frozenset[str]:
    words = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
    return frozenset(
        word.removeprefix(_READ) for word in words if isinstance(word, str) and word.startswith(_READ)
    )


def _why(reason: Exception | None) -> str:
    match reason:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet"
        case jwt.InvalidAudienceError():
            return "it is for another audience"
        case jwt.InvalidIssuerError():
            return "it is of another issuer"
        case jwt.MissingRequiredClaimError():
            return "it lacks 'exp' or 'aud'"
        case jwt.InvalidAlgorithmError():
            return "it is signed by an algorithm that is not accepted"
        case _:
            return "it is not valid"


def _refused(why: str, hint: str) -> AccessDeniedError:
    return AccessDeniedError(f"Cannot accept the token: {why}.", hint=hint, why=NO_TOKEN)
