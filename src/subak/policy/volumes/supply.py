"""What a volume offers and what a claim asks for, in the form in which thousands are compared."""

from __future__ import annotations

from dataclasses import dataclass

from subak.model.manifest import LabelSelector
from subak.model.volume import Claim, Terms, Volume

FILESYSTEM = "Filesystem"
AVAILABLE = "Available"


@dataclass(frozen=True, slots=True)
class Supply:
    """A volume.  `kind` is its mode and its attributes class; a volume that is not `open` takes no new claim."""

    name: str
    size: int
    kind: tuple[str, str]
    modes: frozenset[str]
    terms: Terms | None
    open: bool
    leaving: bool
    volume: Volume

    @classmethod
    def of(cls, volume: Volume) -> Supply:
        """What a volume offers."""
        spec = volume.spec
        return cls(
            volume.name,
            volume.size.nanos,
            (spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or ""),
            frozenset(spec.access_modes or ()),
            volume.terms,
            volume.status.phase == AVAILABLE,
            volume.metadata.deletion_timestamp is not None,
            volume,
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """An unbound claim."""

    claim: Claim
    size: int
    kind: tuple[str, str]
    modes: frozenset[str]
    selector: LabelSelector | None

    @classmethod
    def of(cls, claim: Claim) -> Ask:
        """What a claim asks for."""
        spec = claim.spec
        kind = (spec.volume_mode or FILESYSTEM, spec.volume_attributes_class_name or "")
        return cls(claim, claim.size.nanos, kind, frozenset(spec.access_modes or ()), spec.selector)

    def held_by(self, supply: Supply) -> bool:
        """Whether a volume is large enough, of the right kind, and there to stay."""
        return supply.size >= self.size and supply.kind == self.kind and not supply.leaving

    def met_by(self, supply: Supply) -> bool:
        """Whether a volume that is not meant for the claim may become its own."""
        return (
            supply.open
            and self.held_by(supply)
            and self.modes <= supply.modes
            and (self.selector is None or self.selector.holds(supply.volume.labels))
        )
