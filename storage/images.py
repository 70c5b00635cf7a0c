"""The images that models were shown, by the hash of their bytes: one is kept once a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.engine import Database
from storage.models import images
from storage.records import NewImage, StoredImage


def add_images(conn: Connection, job_id: str, new: Sequence[NewImage]) -> None:
    """Keeps images in the transaction that commits the message which refers to them. The job's row is locked there,
    so that nobody else adds the same."""
    wanted = {image.sha: image for image in new}
    known = sa.select(images.c.sha).where(images.c.job_id == job_id, images.c.sha.in_(wanted))
    for sha in conn.execute(known).scalars():
        del wanted[sha]
    if wanted:
        conn.execute(
            sa.insert(images),
            [
                {
                    "job_id": job_id,
                    "sha": image.sha,
                    "media_type": image.media_type,
                    "data": image.data,
                    "size": len(image.data),
                }
                for image in wanted.values()
            ],
        )


def load_images(db: Database, job_id: str, shas: Iterable[str]) -> list[StoredImage]:
    """Those of these images that are there."""
    columns = (images.c.sha, images.c.media_type, images.c.data)
    statement = sa.select(*columns).where(images.c.job_id == job_id, images.c.sha.in_(list(shas)))
    with db.read() as conn:
        return [StoredImage(**row) for row in conn.execute(statement).mappings()]


def image_usage(db: Database, job_id: str) -> tuple[int, int]:
    """How many images a job has, and their bytes in all."""
    statement = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(images.c.size), 0))
    with db.read() as conn:
        count, size = conn.execute(statement.where(images.c.job_id == job_id)).one()
        return int(count), int(size)
