"""Which classes of the gateware are in the reference, and how their constructors are shown."""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from stagecoach.gateware.mpa.framer import Framer
from stagecoach.gateware.rdmap.receive.receiver import Receiver
from tools.site.components import components_of, show_constructor


class Annotated(wiring.Component):
    """Has its ports as annotations and no constructor of its own."""

    o: Out(1)


def test_components_of_packages_in_a_package_are_found():
    found = components_of("stagecoach.gateware.rdmap")
    assert Receiver in found
    assert len(set(found)) == len(found)


def test_neither_private_nor_imported_classes_are_found():
    found = components_of("stagecoach.gateware.mpa.framer")
    assert found == [Framer]


def test_a_component_is_shown_with_its_own_constructor():
    shown = show_constructor(None, "class", "", Framer, None, "", "")
    assert shown == ("(config: ~stagecoach.gateware.config.RnicConfig)", "")
    assert show_constructor(None, "class", "", dict, None, "", "") is None
    assert show_constructor(None, "class", "", Annotated, None, "", "") == ("()", "")
