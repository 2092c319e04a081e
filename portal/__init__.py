"""The portal. Zones are those of the package `tzdata`, whose version is pinned: a host's own may be years old."""

import zoneinfo

zoneinfo.reset_tzpath(())
