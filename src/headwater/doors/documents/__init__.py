"""Documents over HTTP, in the words of the clients that others write: REST, batches of triggers, replication.

    shapes.py       bodies and answers
    handlers.py     /api/v1/databases/{db}/… and /trigger/v1/databases/{db}/…
    replication.py  /replication/v1/pull and push, for RxDB
    errors.py       what is refused, as those clients read it

Who may do what is said once, in `doors/native/documents.py`.
"""
