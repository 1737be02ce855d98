"""Why a frame is not taken: one name for each reason, which is that of its counter."""


class Refused(Exception):
    """A frame, packet or segment that is dropped; never seen outside this package.

    Attributes
    ----------
    name: of the counter.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(name)
