"""What a run stores on disk, and how it is read back.

Belongs here: the run folder, its tables and records, the `.langenode` container, predictions as xarray. Does not belong
here: reading a user's data (`data`), pages for people (`reports`), deciding what to store (`fitting`, `runs`).
"""
