"""Writing a file whole, or not at all."""

import errno
import os
import tempfile
from pathlib import Path


def write_whole(place: Path, content: bytes | str) -> None:
    """Write a file; Ctrl-C, a full disk or a reader meanwhile finds what was there before, or all.

    content: text is written as UTF-8. A link stays one: its target is written. Permissions stay;
    a new file has those that the umask allows. Raises OSError, with the file's name; so for a
    folder and for a device.
    """
    target = Path(os.path.realpath(place))
    if target.is_symlink():  # links that lead to one another
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    if target.exists() and not target.is_file():  # a folder, or a device such as /dev/null
        raise FileExistsError(errno.EEXIST, "there is something that is no plain file", str(place))
    content = content.encode() if isinstance(content, str) else content
    part = None
    try:
        descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(part, _mode(target))
        os.replace(part, target)
    except BaseException as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise type(error)(error.errno, error.strerror, str(place)) from error
        raise


def _mode(target: Path) -> int:
    """Permissions: those that the file has; of a new one, readable by all, as umask allows."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
