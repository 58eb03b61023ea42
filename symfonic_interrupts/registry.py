"""The points of one `Interrupts`, and what they may not have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.errors import RegistrationError, UnknownInterrupt
from symfonic_interrupts.event_shapes import EVENT_SHAPES, EventShapes
from symfonic_interrupts.registration import InterruptRegistration


class Registry(Mapping[str, InterruptRegistration]):
    """The points of one `Interrupts`, by name."""

    def __init__(self, config: FrameworkConfig, *, replace: bool = False) -> None:
        self._config = config
        self._replace = replace
        self._by_name: dict[str, InterruptRegistration] = {}

    def add(self, registration: InterruptRegistration) -> InterruptRegistration:
        """Add a point.

        Raises:
            FeatureDisabled: the flag for custom points is off.
            RegistrationError: the name is taken, or a node is covered by another point.
        """
        registration.check(self._config)
        known = self._by_name.get(registration.name)
        if known is not None and (known.built_in or not self._replace):
            if known.built_in:
                raise RegistrationError(f"{registration.name} is built in; choose another name")
            raise RegistrationError(
                f"{registration.name} is registered already on this Interrupts; register a point once and share what"
                " register_interrupt returned, or choose another name"
            )
        for other in self._by_name.values():
            if other.name == registration.name or _of_two_objects(other, registration):
                continue
            if twice := set(other.nodes) & set(registration.nodes):
                raise RegistrationError(
                    f"{registration.name}: node {min(twice)!r} is covered by {other.name} already; where two graphs have a"
                    ' node of that name, write "graph/node"'
                )
        self._by_name[registration.name] = registration
        return registration

    @property
    def covers_nodes(self) -> bool:
        """Whether any point covers native nodes."""
        return any(registration.nodes for registration in self._by_name.values())

    def shapes(self, name: str) -> EventShapes:
        """How the events of the point of that name look; also where no such point is registered here."""
        registration = self._by_name.get(name)
        return EVENT_SHAPES if registration is None else registration.shapes

    def named(self, name: str) -> InterruptRegistration:
        """The point of that name. Raises UnknownInterrupt."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownInterrupt(f"no point named {name!r} is registered here") from None

    def __getitem__(self, name: str) -> InterruptRegistration:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _of_two_objects(one: InterruptRegistration, other: InterruptRegistration) -> bool:
    return one.nodes_of is not None and other.nodes_of is not None and one.nodes_of is not other.nodes_of
