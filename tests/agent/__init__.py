"""The agent loop in process: a real database, a real worker process object, a real client, the strict endpoint."""
