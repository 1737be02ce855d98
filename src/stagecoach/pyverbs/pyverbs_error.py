"""The exceptions of pyverbs."""

import os

_NO_CODE = -1


class PyverbsError(Exception):
    """Base of the others. An `error_code`, an errno, is added to the text in numbers and words."""

    def __init__(self, msg: str, error_code: int = -1):
        if error_code != _NO_CODE:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(error_code)}"
        super().__init__(msg)


class PyverbsRDMAError(PyverbsError):
    """The device or the driver refused; `__cause__` is the exception of `stagecoach`, if any."""

    def __init__(self, msg: str, error_code: int = -1):
        super().__init__(msg, error_code)
        self._error_code = error_code

    @property
    def error_code(self) -> int:
        """The errno, or -1."""
        return self._error_code


class PyverbsUserError(PyverbsError):
    """The program asked for what cannot be."""

    def __init__(self, msg: str):
        super().__init__(msg)
