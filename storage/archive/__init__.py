"""The context archive: jobs as folders that `find`, `jq` and `sqlite3` work on, and that move between machines.

layout     where things lie, and in which words
rows       a job's rows as they are archived: what a live run holds is at rest
writer     from the database to a job's folder
tasks_db   the table over all jobs of an archive
lines      reading records where any byte may be broken
conform    what a record must be like to become a row
reader     from a job's folder to its rows
restore    from those rows to the database
"""
