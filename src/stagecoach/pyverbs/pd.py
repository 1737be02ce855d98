"""Protection Domains."""

from typing import Any, NoReturn, Protocol

from stagecoach import host_driver as driver
from stagecoach.pyverbs.base import PyverbsCM, absent, translated, unsupported
from stagecoach.pyverbs.device import Context

PROCESS = "the driver is a part of this process, there is no handle of a kernel"
_ALLOCATORS = "the driver allocates what it needs itself"

ParentDomain = absent("ParentDomain", _ALLOCATORS)
ParentDomainContext = absent("ParentDomainContext", _ALLOCATORS)
ParentDomainInitAttr = absent("ParentDomainInitAttr", _ALLOCATORS)


class HasContext(Protocol):
    """What has a device: a `CMID`."""

    @property
    def context(self) -> Context:
        """The device."""


class PD(PyverbsCM):
    """A Protection Domain of a `Context`, or of the device of a `CMID`."""

    def __init__(self, creator: Context | HasContext, **kwargs: Any):
        if kwargs:
            raise unsupported(f"PD({', '.join(kwargs)}=...)", PROCESS)
        self.context = creator if isinstance(creator, Context) else creator.context
        with translated("PD"):
            self.verbs = driver.PD(self.context.verbs)

    def __repr__(self) -> str:
        return repr(self.verbs)

    def advise_mr(self, advise: int, flags: int, sg_list: object) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("advise_mr", "registered memory is always there")

    def unimport(self) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("unimport", PROCESS)

    def close(self) -> None:
        """Frees the PD; closes its QPs and regions before."""
        with translated("close"):
            self.verbs.close()
