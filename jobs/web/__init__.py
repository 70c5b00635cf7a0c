"""The page: what a browser shows. Its routes lie outside of `/api`; the gate has checked who asks. See docs/page.md."""
