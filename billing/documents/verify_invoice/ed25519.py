"""Signatures of Ed25519, verified as RFC 8032 (5.1.7) says. Python's own library has none."""

from __future__ import annotations

from hashlib import sha512

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of minus one

Point = tuple[int, int, int, int]  # X, Y, Z and T = XY/Z of the affine point (X/Z, Y/Z)


def verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the holder of the public key (32 bytes) signed the message (signature: 64 bytes)."""
    if len(public) != 32 or len(signature) != 64:
        return False
    try:
        key, commitment = _point(public), _point(signature[:32])
    except ValueError:
        return False
    answer = int.from_bytes(signature[32:], "little")
    if answer >= ORDER:
        return False
    challenge = int.from_bytes(sha512(signature[:32] + public + message).digest(), "little") % ORDER
    return _same(_times(answer, BASE), _add(commitment, _times(challenge, key)))


def _add(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(factor: int, point: Point) -> Point:
    product = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            product = _add(product, point)
        point = _add(point, point)
        factor >>= 1
    return product


def _same(one: Point, other: Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % P == 0 and (
        one[1] * other[2] - other[1] * one[2]
    ) % P == 0


def _point(encoded: bytes) -> Point:
    """Raises ValueError for what is no point of the curve."""
    y = int.from_bytes(encoded, "little")
    odd, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if y >= P or (x * x - square) % P or (odd and not x):
        raise ValueError("no point of the curve")
    if x & 1 != odd:
        x = P - x
    return x, y, 1, x * y % P


BASE = _point(b"\x58" + b"\x66" * 31)
