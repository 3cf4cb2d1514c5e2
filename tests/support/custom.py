"""The custom kinds of our clusters, for tests of a server that has them."""

from __future__ import annotations

from subak.local import custom

CUSTOM = custom.kinds()
DEVICE, POD_GROUP, KOORDINATOR_GROUP, PLUGIN_GROUP, QUEUE = CUSTOM
