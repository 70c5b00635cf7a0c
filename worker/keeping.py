"""Files that the worker itself puts into a job's workspace: copies, of which nothing else depends."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from jobs.errors import FileRejected, NotFound
from jobs.resolver import open_workspace, replacing

log = logging.getLogger(__name__)


def keep_file(workspace: Path, job_id: str, path: str, text: str, *, durable: bool = True) -> bool:
    """Writes a file anew as a whole, atomically. False, and a line in the log, where it cannot be written.

    Without `durable` a power cut may take it.
    """
    try:
        root_fd = open_workspace(workspace)
        try:
            with replacing(root_fd, path, durable=durable) as file:
                file.write(text.encode())
        finally:
            os.close(root_fd)
    except (OSError, FileRejected, NotFound) as error:
        log.warning("job %s: %s was not written: %s", job_id, path, error)
        return False
    return True
