"""Jobs as archives: exported, imported, moved to another installation, and cleared away when they are old."""
